P1 reads number[2] = 0 (wants to enter)
P2 reads number[1] = 0 (wants to enter)
P2 writes number[2] := 1 (is through its doorway)
P2 reads number[1] = 0 (enters)
P1 writes number[1] := 1 (is through its doorway)
P1 reads number[2] = 1 (enters)
=> P1 and P2 are both inside
