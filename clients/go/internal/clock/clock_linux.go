package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// boottime is the number of CLOCK_BOOTTIME, which counts suspend. Go's own monotonic clock is CLOCK_MONOTONIC, which does not.
const boottime = 7

func now() time.Duration {
	var spec syscall.Timespec
	_, _, failed := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, boottime, uintptr(unsafe.Pointer(&spec)), 0)
	if failed != 0 {
		return fallback()
	}
	return time.Duration(spec.Nano())
}
