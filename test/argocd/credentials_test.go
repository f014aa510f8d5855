package argocd

import (
	"encoding/json"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/fleet/controller"
)

// Argo CD reads our credentials of a cluster, and calls no one insecurely.
func TestArgoCDReadsOurCredentials(t *testing.T) {
	for name, tt := range map[string]struct {
		ours controller.Credentials
		want v1alpha1.ClusterConfig
	}{
		"none": {},
		"token and authorities": {
			controller.Credentials{BearerToken: "a.b.c", CA: []byte("-----BEGIN CERTIFICATE-----\n")},
			v1alpha1.ClusterConfig{BearerToken: "a.b.c", TLSClientConfig: v1alpha1.TLSClientConfig{CAData: []byte("-----BEGIN CERTIFICATE-----\n")}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			content, err := json.Marshal(tt.ours)
			if err != nil {
				t.Fatal(err)
			}
			var got v1alpha1.ClusterConfig
			if err := json.Unmarshal(content, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("what Argo CD reads (-want +got):\n%s", diff)
			}
			var again controller.Credentials
			if err := json.Unmarshal(content, &again); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.ours, again); diff != "" {
				t.Errorf("what we read (-want +got):\n%s", diff)
			}
		})
	}
}
