module brokkr.io/engines/testpod

go 1.26.0
