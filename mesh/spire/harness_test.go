package spire_test

import (
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
)

// What these tests share with those of package serverapi.
var (
	own     = spiretest.Own
	partner = spiretest.Partner
	other   = spiretest.Other
	node    = spiretest.Node
	alias   = spiretest.Alias
	edgeID  = spiretest.EdgeID
	newID   = spiretest.NewID
	edge    = spiretest.Edge
	edge2   = spiretest.Edge2
)
