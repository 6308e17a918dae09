time passes: it is 6
M1 is asked by M2.1 for a lease
a majority confirms that M1 leads
M1 hears that a majority has confirmed it
time passes: it is 7
M2 hears from M1.1 that its lease is 16 from when it asked
time passes: it is 8
time passes: it is 9
M1 hears what the voters have decided
time passes: it is 10
=> epoch 2 starts while M2 has a lease and is not in it
