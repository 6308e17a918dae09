the voters choose M2 to lead
M2 hears that it leads
M1 is told by M2.1 to freeze for epoch 1
M3 is told by M2.1 to freeze for epoch 1
M2 hears from M1.1, for epoch 1, that it holds nothing
M2 hears from M3.1, for epoch 1, that it holds nothing
=> epoch 1 starts twice
