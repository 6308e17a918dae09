the voters choose M2 to lead
M2 learns that it leads
M1 receives the freeze for epoch 1 from M2.1
M3 receives the freeze for epoch 1 from M2.1
M2 receives the report for epoch 1 from M1.1: it holds nothing
M2 receives the report for epoch 1 from M3.1: it holds nothing
=> epoch 1 starts twice
