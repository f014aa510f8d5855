package api_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

const crdFile = "../../charts/argomesh-principal/files/crds/argomesh.io_agents.yaml"

// crd is the definition we ship, judged by the code the API server judges with.
type crd struct {
	structural *schema.Structural
	openapi    validation.SchemaValidator
	cel        *cel.Validator
}

func loadCRD(t *testing.T) crd {
	t.Helper()
	raw, err := os.ReadFile(crdFile)
	if err != nil {
		t.Fatal(err)
	}
	var def apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(raw, &def); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&def)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&def.Spec)
	def.Status.StoredVersions = []string{def.Spec.Versions[0].Name}
	var internal apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&def, &internal, nil); err != nil {
		t.Fatal(err)
	}
	if errs := crdvalidation.ValidateCustomResourceDefinition(t.Context(), &internal); len(errs) > 0 {
		t.Fatalf("the API server would refuse %s: %v", crdFile, errs.ToAggregate())
	}
	// After the conversion a single version's schema stands at the top.
	props := internal.Spec.Validation.OpenAPIV3Schema
	structural, err := schema.NewStructural(props)
	if err != nil {
		t.Fatal(err)
	}
	openapi, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		t.Fatal(err)
	}
	return crd{structural, openapi, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

// check returns what the API server would say to a create, or to an update of
// old when that is not nil.
func (c crd) check(t *testing.T, obj, old *v1alpha1.Agent) []string {
	t.Helper()
	next := toMap(t, obj)
	errs := validation.ValidateCustomResource(nil, next, c.openapi)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.structural, next)...)
	var prior any
	if old != nil {
		prior = toMap(t, old)
	}
	more, _ := c.cel.Validate(context.Background(), nil, c.structural, next, prior, celconfig.RuntimeCELCostBudget)
	var out []string
	for _, err := range append(errs, more...) {
		out = append(out, err.Error())
	}
	return out
}

func toMap(t *testing.T, a *v1alpha1.Agent) map[string]any {
	t.Helper()
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func edge1(change func(*v1alpha1.Agent)) *v1alpha1.Agent {
	a := &v1alpha1.Agent{}
	a.SetGroupVersionKind(v1alpha1.AgentGroupVersionKind)
	a.Name, a.Namespace = "edge-1", "argocd"
	a.Spec.Mode = v1alpha1.ModeManaged
	a.Spec.Identity.SPIFFEIDs = []string{"spiffe://example.org/argomesh/agent/edge-1"}
	a.Spec.DeletionPolicy = v1alpha1.DeletionOrphan
	if change != nil {
		change(a)
	}
	return a
}

func TestCRDJudgesAgents(t *testing.T) {
	c := loadCRD(t)
	manyIDs := make([]string, 17)
	for i := range manyIDs {
		manyIDs[i] = fmt.Sprintf("spiffe://example.org/agent/%d", i)
	}
	tests := map[string]struct {
		change func(*v1alpha1.Agent)
		// refusal is a part of the one error expected; empty for none.
		refusal string
	}{
		"the smallest agent": {},
		"an autonomous agent with everything set": {change: func(a *v1alpha1.Agent) {
			a.Spec.Mode = v1alpha1.ModeAutonomous
			a.Spec.Identity.SPIFFEIDs = slices.Concat(manyIDs[:15], []string{"spiffe://td_1.example.org/A/b.c/_-"})
			a.Spec.Suspended = true
			a.Spec.Labels = map[string]v1alpha1.LabelValue{"env": "prod", "topology.example.org/region": "eu-1", "empty": ""}
		}},
		"a name of 63 bytes": {change: func(a *v1alpha1.Agent) { a.Name = strings.Repeat("a", 63) }},
		"a name of 64 bytes": {
			change:  func(a *v1alpha1.Agent) { a.Name = strings.Repeat("a", 64) },
			refusal: "metadata.name must be a DNS label",
		},
		"a name with a dot": {
			change:  func(a *v1alpha1.Agent) { a.Name = "edge.1" },
			refusal: "metadata.name must be a DNS label",
		},
		"Argo CD's name for its own cluster": {
			change:  func(a *v1alpha1.Agent) { a.Name = "in-cluster" },
			refusal: "metadata.name must not be in-cluster",
		},
		"no mode": {
			change:  func(a *v1alpha1.Agent) { a.Spec.Mode = "" },
			refusal: `spec.mode: Unsupported value: ""`,
		},
		"an unknown mode": {
			change:  func(a *v1alpha1.Agent) { a.Spec.Mode = "remote" },
			refusal: `spec.mode: Unsupported value: "remote"`,
		},
		"a deletion policy that does not exist": {
			change:  func(a *v1alpha1.Agent) { a.Spec.DeletionPolicy = "force" },
			refusal: `spec.deletionPolicy: Unsupported value: "force"`,
		},
		"a managed agent that cascades and shows child Applications": {change: func(a *v1alpha1.Agent) {
			a.Spec.DeletionPolicy, a.Spec.ChildApplications = v1alpha1.DeletionCascade, v1alpha1.ChildApplicationsMirror
		}},
		"a managed agent without a policy": {change: func(a *v1alpha1.Agent) { a.Spec.DeletionPolicy = "" }},
		"an autonomous agent with every default": {change: func(a *v1alpha1.Agent) {
			a.Spec.Mode = v1alpha1.ModeAutonomous
			a.Spec.DeletionPolicy, a.Spec.ChildApplications = v1alpha1.DeletionOrphan, v1alpha1.ChildApplicationsIgnore
		}},
		"an autonomous agent that cascades": {
			change: func(a *v1alpha1.Agent) {
				a.Spec.Mode, a.Spec.DeletionPolicy = v1alpha1.ModeAutonomous, v1alpha1.DeletionCascade
			},
			refusal: "deletionPolicy cascade is for mode managed",
		},
		"an autonomous agent that shows child Applications": {
			change: func(a *v1alpha1.Agent) {
				a.Spec.Mode, a.Spec.ChildApplications = v1alpha1.ModeAutonomous, v1alpha1.ChildApplicationsMirror
			},
			refusal: "childApplications mirror is for mode managed",
		},
		"child Applications in a way that does not exist": {
			change:  func(a *v1alpha1.Agent) { a.Spec.ChildApplications = "adopt" },
			refusal: `spec.childApplications: Unsupported value: "adopt"`,
		},
		"an autonomous agent whose project roles are mirrored": {change: func(a *v1alpha1.Agent) {
			a.Spec.Mode, a.Spec.ProjectRoles = v1alpha1.ModeAutonomous, v1alpha1.ProjectRolesMirror
		}},
		"a managed agent whose project roles are mirrored": {
			change:  func(a *v1alpha1.Agent) { a.Spec.ProjectRoles = v1alpha1.ProjectRolesMirror },
			refusal: "projectRoles mirror is for mode autonomous",
		},
		"limits": {change: func(a *v1alpha1.Agent) {
			a.Spec.Limits = &v1alpha1.AgentLimits{WritesPerSecond: 1, WritesBurst: 100_000_000, BytesPerSecond: 1024, BytesBurst: 1 << 40}
		}},
		"limits that let nothing pass": {
			change:  func(a *v1alpha1.Agent) { a.Spec.Limits = &v1alpha1.AgentLimits{BytesPerSecond: 1023} },
			refusal: "spec.limits.bytesPerSecond",
		},
		"project roles in a way that does not exist": {
			change:  func(a *v1alpha1.Agent) { a.Spec.ProjectRoles = "groups" },
			refusal: `spec.projectRoles: Unsupported value: "groups"`,
		},
		"no SPIFFE ID": {
			change:  func(a *v1alpha1.Agent) { a.Spec.Identity.SPIFFEIDs = []string{} },
			refusal: "spec.identity.spiffeIDs: Invalid value: 0",
		},
		"seventeen SPIFFE IDs": {
			change:  func(a *v1alpha1.Agent) { a.Spec.Identity.SPIFFEIDs = manyIDs },
			refusal: "spec.identity.spiffeIDs: Too many: 17",
		},
		"the same SPIFFE ID twice": {
			change: func(a *v1alpha1.Agent) {
				a.Spec.Identity.SPIFFEIDs = []string{"spiffe://example.org/a", "spiffe://example.org/a"}
			},
			refusal: "spec.identity.spiffeIDs[1]: Duplicate value",
		},
		"a label of ours": {
			change: func(a *v1alpha1.Agent) {
				a.Spec.Labels = map[string]v1alpha1.LabelValue{"argocd.argoproj.io/secret-type": "repository"}
			},
			refusal: "are set by Argomesh",
		},
		"a label that is none": {
			change: func(a *v1alpha1.Agent) {
				a.Spec.Labels = map[string]v1alpha1.LabelValue{"not a key": "x"}
			},
			refusal: "keys must be label keys",
		},
		"a label value that is none": {
			change: func(a *v1alpha1.Agent) {
				a.Spec.Labels = map[string]v1alpha1.LabelValue{"env": "-prod"}
			},
			refusal: "spec.labels.env: Invalid value",
		},
		"a name of Kubernetes' own namespaces": {
			change:  func(a *v1alpha1.Agent) { a.Name = "kube-system" },
			refusal: "must not begin with kube-",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := c.check(t, edge1(tt.change), nil)
			switch {
			case tt.refusal == "" && len(got) > 0:
				t.Errorf("refused: %q", got)
			case tt.refusal != "" && (len(got) != 1 || !strings.Contains(got[0], tt.refusal)):
				t.Errorf("refusals = %q, want one with %q", got, tt.refusal)
			}
		})
	}
}

func TestCRDKeepsMode(t *testing.T) {
	c := loadCRD(t)
	old := edge1(nil)
	next := edge1(func(a *v1alpha1.Agent) { a.Spec.Suspended = true })
	if got := c.check(t, next, old); len(got) > 0 {
		t.Errorf("suspending is refused: %q", got)
	}
	next.Spec.Mode = v1alpha1.ModeAutonomous
	const want = "mode cannot be changed"
	if got := c.check(t, next, old); len(got) != 1 || !strings.Contains(got[0], want) {
		t.Errorf("changing the mode: refusals = %q, want one with %q", got, want)
	}
}

// Tokens that were ended do not come back.
func TestCRDKeepsTokensEnded(t *testing.T) {
	c := loadCRD(t)
	old := edge1(func(a *v1alpha1.Agent) { a.Spec.TokenGeneration = 2 })
	for generation, refused := range map[int64]bool{0: true, 1: true, 2: false, 3: false} {
		next := edge1(func(a *v1alpha1.Agent) { a.Spec.TokenGeneration = generation })
		if got := c.check(t, next, old); (len(got) > 0) != refused {
			t.Errorf("generation %d after 2: refusals = %q", generation, got)
		}
	}
	if got := c.check(t, old, edge1(nil)); len(got) > 0 {
		t.Errorf("generation 2 after none: refusals = %q", got)
	}
}

// A policy must stay changeable until the end: that is how an Agent whose spoke
// does not come back is let go.
func TestCRDLetsThePolicyChangeWhileDeleting(t *testing.T) {
	c := loadCRD(t)
	old := edge1(func(a *v1alpha1.Agent) {
		a.DeletionTimestamp = new(metav1.Now())
		a.Finalizers = []string{v1alpha1.Finalizer}
		a.Spec.DeletionPolicy = v1alpha1.DeletionCascade
	})
	next := old.DeepCopy()
	next.Spec.DeletionPolicy = v1alpha1.DeletionOrphan
	for _, step := range [][2]*v1alpha1.Agent{{old, next}, {next, old}} {
		if got := c.check(t, step[1], step[0]); len(got) > 0 {
			t.Errorf("from %s to %s: refusals = %q", step[0].Spec.DeletionPolicy, step[1].Spec.DeletionPolicy, got)
		}
	}
}

func TestCRDJudgesStatus(t *testing.T) {
	c := loadCRD(t)
	full := func(a *v1alpha1.Agent) {
		a.Status.History = &v1alpha1.AgentHistory{ID: "h", Tokens: []string{"c", "b", "a"}, ClusterUID: "u"}
		a.Status.DeletionsHeld = &v1alpha1.DeletionsHeld{
			ID: "x", Since: metav1.Now(), Reason: v1alpha1.HoldTooMany, Message: strings.Repeat("m", 1024), Total: 51,
			Objects: slices.Repeat([]v1alpha1.HeldObject{{Kind: "Application", Namespace: "edge-1", Name: "a"}}, v1alpha1.MaxHeld),
		}
	}
	tests := map[string]struct {
		change  func(*v1alpha1.AgentStatus)
		refusal string
	}{
		"the most of everything": {func(*v1alpha1.AgentStatus) {}, ""},
		"a fourth token": {
			func(s *v1alpha1.AgentStatus) { s.History.Tokens = append(s.History.Tokens, "d") },
			"status.history.tokens: Too many: 4",
		},
		"no token": {
			func(s *v1alpha1.AgentStatus) { s.History.Tokens = []string{} },
			"status.history.tokens: Invalid value: 0",
		},
		"one object more than may be named": {
			func(s *v1alpha1.AgentStatus) {
				s.DeletionsHeld.Objects = append(s.DeletionsHeld.Objects, s.DeletionsHeld.Objects[0])
			},
			"status.deletionsHeld.objects: Too many: 51",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := c.check(t, edge1(func(a *v1alpha1.Agent) { full(a); tt.change(&a.Status) }), nil)
			switch {
			case tt.refusal == "" && len(got) > 0:
				t.Errorf("refused: %q", got)
			case tt.refusal != "" && (len(got) != 1 || !strings.Contains(got[0], tt.refusal)):
				t.Errorf("refusals = %q, want one with %q", got, tt.refusal)
			}
		})
	}
}

// TestCRDAgreesWithParseID keeps the CRD's idea of a SPIFFE ID and that of
// package identity the same, so that the registry can parse what the API server
// took.
func TestCRDAgreesWithParseID(t *testing.T) {
	c := loadCRD(t)
	ids := []string{
		"spiffe://example.org/a",
		"spiffe://example.org/argomesh/agent/edge-1",
		"spiffe://_.-/A_b-c.d/...",
		"spiffe://example.org/spired/x",
		"spiffe://example.org/a/spire/x",
		"spiffe://example.org/" + strings.Repeat("a", 2048-len("spiffe://example.org/")),
		"spiffe://example.org/" + strings.Repeat("a", 2049-len("spiffe://example.org/")),
		"spiffe://" + strings.Repeat("t", 255) + "/a",
		"spiffe://" + strings.Repeat("t", 256) + "/a",
		"spiffe://./a",
		"spiffe://../a",
		"", "spiffe://", "spiffe:///a", "spiffe://example.org", "spiffe://example.org/",
		"spiffe://example.org/a/", "spiffe://example.org//a", "spiffe://example.org/./a",
		"spiffe://example.org/a/..", "spiffe://example.org/..", "spiffe://example.org/a/../b",
		"spiffe://example.org/spire", "spiffe://example.org/spire/agent/x",
		"spiffe://Example.org/a", "SPIFFE://example.org/a", "https://example.org/a",
		"spiffe://example.org:8443/a", "spiffe://user@example.org/a", "spiffe://example.org/a?b", "spiffe://example.org/a#b",
		"spiffe://example.org/a b", "spiffe://example.org/%61", "spiffe://example.org/ü", "spiffe://example.org/a\n",
		" spiffe://example.org/a",
	}
	accepted := 0
	for _, id := range ids {
		_, err := identity.ParseID(id)
		refusals := c.check(t, edge1(func(a *v1alpha1.Agent) { a.Spec.Identity.SPIFFEIDs = []string{id} }), nil)
		if (err == nil) != (len(refusals) == 0) {
			t.Errorf("%.80q: ParseID says %v, the CRD %q", id, err, refusals)
		}
		if err == nil {
			accepted++
		}
	}
	if accepted < 5 {
		t.Errorf("only %d of the IDs are accepted", accepted)
	}
}
