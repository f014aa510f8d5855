// Package tree holds the rules about the tree itself, as tests: which package may
// import which, what must not be linked into a binary, what every package and
// file has. It reads what `go list` and git say and knows nothing of the code.
//
// A failure says which rule of docs/contributing/conventions.md it guards. A new package needs a row in
// mayImport; a row that is hard to write is a sign that the package sits in the
// wrong place.
package tree
