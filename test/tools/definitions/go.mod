module github.com/argomesh/argomesh/test/tools/definitions

go 1.26.3

// Of the modules whose versions toolset names, only files are read, so that none is
// required here: one module cannot require several versions of another. go.sum pins them.
