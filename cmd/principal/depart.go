package main

import (
	"context"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
)

// departWithoutCascade is controller.Config.Depart of a principal that leaves the
// hub's Applications as they are: nothing is to be done for an orphaned agent, and
// one that is to be deleted with its Applications stays.
func departWithoutCascade(_ context.Context, agent v1alpha1.Agent) (waits string, err error) {
	if fleet.Cascades(&agent) {
		return "a principal that can delete its Applications", nil
	}
	return "", nil
}
