// Command measure counts what can be counted about how the code is cut: lines of packages,
// functions, structs of state, arrows between the files of a package, and the way of four
// values through the code. Its test holds them against goals.go.
//
//	go run ./test/tree/measure                          the whole table
//	go run ./test/tree/measure -trips                   and each trip, file by file
//	go run ./test/tree/measure -arrows backends/mirror  and the arrows of a package that run back up
//	go run ./test/tree/measure -root DIR                of another checkout of this module
//
// What is counted is product code: no tests, nothing generated, nothing below test/.
//
// Lines are all lines of a file. A function is declared; its lines are those from func to
// the last brace, a literal counts with the function it stands in. Depth: see nesting.
//
// A struct is of state unless it is of the Kubernetes API, settings, or a record of data:
// see kindOf. Only what cannot act or change is one of these, so nothing becomes one by its name.
//
// An arrow runs from file A to file B of one package if A names something that B declares:
// a function, a type, a variable, a constant, a method or a field. It runs back up if B
// stands above A in the order of files that has fewest such arrows: see graph.order.
//
// A trip follows one value, in the order in which the code is written and into every
// branch: see passage. Tables of functions and interfaces that we declare are followed into
// every implementation of ours that the program links.
package main
