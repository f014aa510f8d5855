package status

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

func agentOf(name string, change func(*v1alpha1.Agent)) Agent {
	a := &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: name}}
	a.Spec.Mode = v1alpha1.ModeManaged
	a.Status.Connected, a.Status.Summary = true, "Connected"
	a.Status.Versions = v1alpha1.AgentVersions{Agent: "v0.1.0", Kubernetes: "v1.36.1"}
	a.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	change(a)
	return newAgent(a)
}

func TestReport(t *testing.T) {
	r := &Report{Hub: Hub{Namespace: "argocd", Kubernetes: "v1.36.1", Principal: "v0.1.0", Pods: "0 of 1 pods are ready"}, Agents: []Agent{
		agentOf("edge-3", func(a *v1alpha1.Agent) { a.Status.Connected, a.Status.Summary = false, "Away 3m" }),
		agentOf("edge-1", func(*v1alpha1.Agent) {}),
		agentOf("edge-4", func(a *v1alpha1.Agent) {
			a.Spec.Suspended, a.Status.Connected, a.Status.Summary = true, false, "Suspended"
		}),
		agentOf("edge-2", func(a *v1alpha1.Agent) {
			a.Status.Conditions[0].Status, a.Status.Conditions[0].Message = metav1.ConditionFalse, "its cluster Secret is another's"
		}),
	}}
	r.finish()
	want := []string{
		"the principal is not ready: 0 of 1 pods are ready",
		"agent edge-2: Connected, not ready: its cluster Secret is another's",
		"agent edge-3: Away 3m",
	}
	if diff := cmp.Diff(want, r.Problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	var out bytes.Buffer
	if err := r.print(&out, false); err != nil {
		t.Fatal(err)
	}
	const screen = `HUB      PRINCIPAL   KUBERNETES   ARGO CD   PODS
argocd   v0.1.0      v1.36.1      -         0 of 1 pods are ready

AGENT    MODE      STATUS                                                  VERSION   KUBERNETES
edge-1   managed   Connected                                               v0.1.0    v1.36.1
edge-2   managed   Connected, not ready: its cluster Secret is another's   v0.1.0    v1.36.1
edge-3   managed   Away 3m                                                 v0.1.0    v1.36.1
edge-4   managed   Suspended                                               v0.1.0    v1.36.1

2 of 4 agents are as they should be
`
	if diff := cmp.Diff(screen, out.String()); diff != "" {
		t.Errorf("screen (-want +got):\n%s", diff)
	}
}

// Of many agents a screen has those that need someone.
func TestReportOfMany(t *testing.T) {
	r := &Report{Hub: Hub{PodsReady: true}}
	for i := range 60 {
		r.Agents = append(r.Agents, agentOf(fmt.Sprintf("edge-%02d", i), func(a *v1alpha1.Agent) {
			if i >= 30 {
				a.Status.Connected, a.Status.Summary = false, "Never connected"
			}
		}))
	}
	r.finish()
	for wide, want := range map[bool]struct {
		rows int
		last string
	}{false: {20, "30 of 60 agents are as they should be; 40 are not shown (-o wide)\n"}, true: {60, "30 of 60 agents are as they should be\n"}} {
		var out bytes.Buffer
		if err := r.print(&out, wide); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(out.String(), "edge-"); got != want.rows || !strings.HasSuffix(out.String(), want.last) {
			t.Errorf("wide %t: %d rows of %d\n%s", wide, got, want.rows, out.String())
		}
		if !wide && strings.Contains(out.String(), "edge-29") {
			t.Error("it shows an agent that needs no one")
		}
	}
	if got := firstOf(r.Problems); !strings.HasSuffix(got, "; and 25 more") {
		t.Errorf("problems %q", got)
	}
}
