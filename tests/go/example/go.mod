module example.org/quota

go 1.24.0

require mori v0.0.0

require golang.org/x/sys v0.38.0 // indirect

replace mori => ../../..
