module jsonsort

go 1.24
