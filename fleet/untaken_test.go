package fleet_test

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
)

// TestUntaken has one row for each kind of Application that an agent takes, or does not.
// want is what the message has, empty for none; ends says that a sync is ended.
func TestUntaken(t *testing.T) {
	const (
		byNamespace = 1 << iota
		byDestination
		withController
		without
	)
	const always = byNamespace | byDestination | withController | without
	at := func(namespace, name, server string) fleet.Placement {
		return fleet.Placement{Namespace: namespace, Name: name, Server: server}
	}
	for name, c := range map[string]struct {
		app  fleet.Placement
		when int
		want string
		ends bool
	}{
		"by the form, by name":    {at("argocd", "edge-1", ""), byNamespace | withController | without, "create it there (argocd app create edge-1/web)", true},
		"by the form, by server":  {at("argocd", "", "https://proxy:9090/agents/edge-1/"), byNamespace | withController | without, "whose Applications are in namespace edge-1, and it is in argocd", true},
		"in another's namespace":  {at("edge-3", "edge-1", ""), byDestination | withController | without, "namespace edge-3 is none where Applications of agents may be", true},
		"the agent has it":        {at("edge-1", "edge-1", ""), byNamespace | withController | without, "", false},
		"the agent has it, too":   {at("argocd", "edge-1", ""), byDestination | withController | without, "", false},
		"its link speaks for it":  {at("edge-1", "elsewhere", ""), byNamespace | withController | without, "", false},
		"an agent of no space":    {at("argocd", "poor", ""), byNamespace | withController | without, "no namespace on this hub: see condition Conflict", true},
		"of an autonomous agent":  {at("argocd", "auto", ""), always, "agent auto, which is autonomous: delete it here and create it on that spoke", true},
		"for its agent":           {at("auto", "auto", ""), always, "which is autonomous", true},
		"for nobody there":        {at("auto", "nowhere", ""), byNamespace | byDestination | withController, "in a namespace of agent auto, which is autonomous", false},
		"for nobody at all there": {at("auto", "", ""), byNamespace | byDestination | without, "in a namespace of agent auto", true},
		"for the hub there":       {at("auto", "in-cluster", ""), byNamespace | byDestination | withController, "", false},
		"for no hub there":        {at("auto", "", "https://kubernetes.default.svc"), byNamespace | byDestination | without, "in a namespace of agent auto", false},
		"for a push cluster":      {at("auto", "push", ""), always, "", false},
		"in a managed namespace":  {at("edge-1", "nowhere", ""), byDestination | withController, "set destination.name to edge-1", false},
		"in one not admitted":     {at("edge-3", "nowhere", ""), byDestination | withController, "create it in namespace argocd with destination.name edge-3", false},
		"for another agent there": {at("edge-1", "edge-3", ""), byDestination | withController | without, "", false},
		"no cluster":              {at("argocd", "nowhere", ""), byNamespace | byDestination | without, "Argo CD does not know the cluster of its destination", true},
		"no cluster by server":    {at("argocd", "", "https://nowhere"), byNamespace | byDestination | without, "does not know the cluster", true},
		"no destination":          {at("team", "", ""), byNamespace | byDestination | without, "does not know the cluster", true},
		"a controller may tell":   {at("argocd", "nowhere", ""), byNamespace | byDestination | withController, "", false},
		"a push cluster":          {at("argocd", "push", ""), always, "", false},
		"a push cluster's server": {at("argocd", "", "https://push/"), always, "", false},
		"the hub":                 {at("argocd", "in-cluster", ""), always, "", false},
		"the hub's server":        {at("team", "", "https://kubernetes.default.svc/"), always, "", false},
		"a Secret in our name":    {at("argocd", "taken", ""), always, "", false},
		"an agent no more":        {at("argocd", "", "https://proxy:9090/agents/gone"), byNamespace | byDestination | without, "does not know the cluster", true},
	} {
		t.Run(name, func(t *testing.T) {
			for mapping, m := range map[int]fleet.Mapping{
				byNamespace:   {Namespace: "argocd"},
				byDestination: {Namespace: "argocd", ByDestination: true, Admits: func(ns string) bool { return ns == "edge-1" }},
			} {
				m.Server = func(name identity.AgentName) string { return "https://proxy:9090/agents/" + name.String() }
				r := fleet.Registry{Mapping: m}
				r.Set([]v1alpha1.Agent{
					mapped("edge-1", 1, v1alpha1.ModeManaged), mapped("edge-3", 2, v1alpha1.ModeManaged), mapped("auto", 3, v1alpha1.ModeAutonomous),
					mapped("poor", 4, v1alpha1.ModeManaged, pair("", "edge-1")), mapped("taken", 5, v1alpha1.ModeAutonomous),
				})
				for controller, has := range map[int]bool{withController: true, without: false} {
					if c.when&mapping == 0 || c.when&controller == 0 {
						continue
					}
					got := r.Untaken(fleet.Deployer{
						Controller: has, Names: map[string]bool{"push": true, "taken": true}, Servers: map[string]bool{"https://push": true},
					})("web", c.app)
					if (got.Message == "") != (c.want == "") || !strings.Contains(got.Message, c.want) || got.EndsSync != c.ends {
						t.Errorf("by destination %v, controller %v: %+v, want %q, %v", m.ByDestination, has, got, c.want, c.ends)
					}
				}
			}
		})
	}
}
