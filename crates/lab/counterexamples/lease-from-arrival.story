time passes: it is 6
M1 receives a request for a lease from M2.1
a majority confirms that M1 leads
M1 learns that a majority has confirmed it
time passes: it is 7
M2 receives a lease of 16 from M1.1, counted from its request
time passes: it is 8
time passes: it is 9
M1 learns what the voters have decided
time passes: it is 10
=> epoch 2 starts while M2 has a lease and is not in it
