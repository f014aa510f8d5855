package specs

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

func TestDiffSpecs(t *testing.T) {
	spec := func(change func(*v1alpha1.AgentSpec)) v1alpha1.AgentSpec {
		s := v1alpha1.AgentSpec{
			Mode:     v1alpha1.ModeManaged,
			Identity: v1alpha1.AgentIdentity{SPIFFEIDs: []string{"spiffe://a/b", "spiffe://a/c"}},
		}
		if change != nil {
			change(&s)
		}
		return s
	}
	tests := map[string]struct {
		have, want v1alpha1.AgentSpec
		diff       []string
	}{
		"the same": {have: spec(nil), want: spec(nil)},
		"defaults and the order of sets are no difference": {
			have: spec(func(s *v1alpha1.AgentSpec) {
				s.DeletionPolicy, s.ChildApplications = v1alpha1.DeletionOrphan, v1alpha1.ChildApplicationsIgnore
				s.ProjectRoles, s.CascadeHold = v1alpha1.ProjectRolesIgnore, new(v1alpha1.DefaultCascadeHold)
			}),
			want: spec(func(s *v1alpha1.AgentSpec) { s.Identity.SPIFFEIDs = []string{"spiffe://a/c", "spiffe://a/b"} }),
		},
		"every field counts": {
			have: spec(func(s *v1alpha1.AgentSpec) {
				s.Suspended = true
				s.Labels = map[string]v1alpha1.LabelValue{"env": "prod", "a.b/c": "d"}
			}),
			want: spec(func(s *v1alpha1.AgentSpec) {
				s.Mode = v1alpha1.ModeAutonomous
				s.Identity.SPIFFEIDs = s.Identity.SPIFFEIDs[:1]
				s.Labels = map[string]v1alpha1.LabelValue{"env": "test"}
			}),
			diff: []string{
				`spec.identity.spiffeIDs is ["spiffe://a/b","spiffe://a/c"], not ["spiffe://a/b"]`,
				`spec.labels.a.b/c is "d", not unset`,
				`spec.labels.env is "prod", not "test"`,
				`spec.mode is "managed", not "autonomous"`,
				`spec.suspended is true, not unset`,
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Diff(tt.have, tt.want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.diff, got); diff != "" {
				t.Errorf("diffSpecs() (-want +got):\n%s", diff)
			}
		})
	}
}
