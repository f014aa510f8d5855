package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

func newAgentCommand(std streams, conn *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "agent",
		Aliases: []string{"agents"},
		Short:   "Create, list, get, change, suspend and delete agents, print the values of their charts, let held deletions happen, mend destinations, and print an agent's role",
		Long: "An agent is registered by an Agent object in the namespace of the hub's Argo CD.\n" +
			"These commands write and read that object; kubectl and GitOps do as well.",
		Args: noCommand,
		RunE: showHelp,
	}
	cmd.AddCommand(
		newCreateCommand(std, conn),
		newListCommand(std, conn),
		newGetCommand(std, conn),
		newEditCommand(std, conn),
		newSetCommand(std, conn),
		newSuspendCommand(std, conn),
		newResumeCommand(std, conn),
		newValuesCommand(std, conn),
		newDeleteCommand(std, conn),
		newAcceptCommand(std, conn),
		newKeepCommand(std, conn),
		newReleaseCommand(std, conn),
		newRewriteCommand(std, conn),
		newRevokeTokensCommand(std, conn),
		newRoleCommand(std),
	)
	return cmd
}

// parseAgent returns the typed form of an object of the hub, with a status whose texts are
// one line each: spokes choose some of them.
func parseAgent(obj *unstructured.Unstructured) (*v1alpha1.Agent, error) {
	clean := obj.DeepCopy()
	if status, found := clean.Object["status"]; found {
		clean.Object["status"] = cleanTree(status)
	}
	agent := &v1alpha1.Agent{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(clean.Object, agent); err != nil {
		return nil, fmt.Errorf("read agent %s: %w", obj.GetName(), err)
	}
	return agent, nil
}
