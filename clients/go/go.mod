module lockkeeper.example/lockkeeper

go 1.19
