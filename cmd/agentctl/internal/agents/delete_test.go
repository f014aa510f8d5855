package agents

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

func TestConsequencesNameWhatToDo(t *testing.T) {
	tests := map[string]struct {
		mode   v1alpha1.AgentMode
		policy v1alpha1.DeletionPolicy
		force  bool
		want   []string
		not    []string
	}{
		"orphan": {
			mode: v1alpha1.ModeManaged, policy: v1alpha1.DeletionOrphan,
			want: []string{"--all argomesh.io/source- argocd.argoproj.io/source-uid- argocd.argoproj.io/principal-uid-\n", "argocd app delete NAME --cascade=false --core"},
			not:  []string{"Forced"},
		},
		"force": {
			mode: v1alpha1.ModeManaged, policy: v1alpha1.DeletionOrphan, force: true,
			want: []string{"Forced: the hub did not wait for the spoke", "--cascade=false"},
		},
		"cascade": {
			mode: v1alpha1.ModeManaged, policy: v1alpha1.DeletionCascade,
			want: []string{"with their workloads", "agentctl agent delete edge-1 --force"},
			not:  []string{"kubectl", "stay as they are"},
		},
		"autonomous": {
			mode: v1alpha1.ModeAutonomous, policy: v1alpha1.DeletionOrphan,
			want: []string{"its Applications are its own"},
			not:  []string{"kubectl", "argocd app delete"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			agent := &v1alpha1.Agent{}
			agent.Name, agent.Spec.Mode, agent.Spec.DeletionPolicy = "edge-1", tt.mode, tt.policy
			got := (&deleteCommand{force: tt.force}).consequences(agent)
			for _, part := range tt.want {
				if !strings.Contains(got, part) {
					t.Errorf("it says\n%swant something with\n%s", got, part)
				}
			}
			for _, part := range tt.not {
				if strings.Contains(got, part) {
					t.Errorf("it says\n%swant nothing with\n%s", got, part)
				}
			}
		})
	}
}
