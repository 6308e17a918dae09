S2 and S3 are cut off from the others
S1 misses the leader
a timer of S1 runs out
=> S1 comes to lead although S3 is up
