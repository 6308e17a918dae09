/* Loaded into a server (LD_PRELOAD), so that its wall clock is five seconds ahead. Other clocks are not changed. */
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
	/* The system call itself: an allocator reads the clock before symbols can be looked up. */
	long failed = syscall(SYS_clock_gettime, clock, now);
	if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += 5;
	return (int)failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec precise;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &precise))
		return -1;
	now->tv_sec = precise.tv_sec;
	now->tv_usec = precise.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *now)
{
	struct timespec precise;
	if (clock_gettime(CLOCK_REALTIME, &precise))
		return -1;
	if (now)
		*now = precise.tv_sec;
	return precise.tv_sec;
}
