package mesh

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/meshconfig"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/diff"
	meshapi "github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/istio"
	meshobjects "github.com/argomesh/argomesh/mesh/objects"
	"github.com/argomesh/argomesh/mesh/spire"
)

// State is what a cluster should have of the objects of one product, and what it has.
type State struct {
	want, have []*unstructured.Unstructured
	places     []meshobjects.Scope
	manager    string
	target     *registration.Objects
}

// ConfigOf returns the block mesh of a principal whose configuration is that of its chart's values.
func ConfigOf(namespace string, values map[string]any) (meshconfig.Mesh, error) {
	settings, _ := values["config"].(map[string]any)
	raw, err := yaml.Marshal(map[string]any{"namespace": namespace, "mesh": settings["mesh"]})
	if err != nil {
		return meshconfig.Mesh{}, err
	}
	cfg, err := loadMesh(config.File{Path: "of the values of the chart", Content: raw})
	if err != nil {
		return meshconfig.Mesh{}, meshProblems(err)
	}
	return cfg.Mesh, nil
}

// Agents returns the SPIFFE IDs of the Agents of a hub that may connect; none where it has no Agents yet.
func Agents(ctx context.Context, conn *cli.Connection) (map[identity.AgentName][]spiffeid.ID, error) {
	h, err := conn.Hub()
	if err != nil {
		return nil, err
	}
	list, err := h.Agents.List(ctx, metav1.ListOptions{})
	if cli.IsCRDMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, h.Explain(err, "list agents")
	}
	return admitted(list.Items)
}

// Observe returns what a hub should have of a product, and has. Part is one of meshconfig's.
func Observe(ctx context.Context, conn *cli.Connection, namespace string, m meshconfig.Mesh, part string,
	agents map[identity.AgentName][]spiffeid.ID) (State, error) {
	s := State{manager: meshobjects.Manager(namespace)}
	parts := m.Parts(namespace)
	of := parts[slices.IndexFunc(parts, func(p meshconfig.Part) bool { return p.Name == part })]
	var err error
	if s.want, err = of.Render(agents); err != nil {
		return State{}, meshProblems(err)
	}
	s.places = of.Places
	err = s.read(ctx, conn, part, func(*unstructured.Unstructured) bool { return true })
	return s, err
}

// ObserveSpoke returns what a spoke should have of its Istio for an agent that reaches its hub at host:port, and
// has.
func ObserveSpoke(ctx context.Context, conn *cli.Connection, namespace string, principal spiffeid.ID,
	hub meshapi.HubAddress) (State, error) {
	objects, err := istio.RenderSpoke(meshapi.Snapshot{Self: principal, Reach: &meshapi.Reach{
		Stream: meshapi.StreamPort{
			Port: meshconfig.Default().StreamPort, Exposure: meshapi.ExposureDirect, Method: identity.MethodX509, Hub: hub,
		},
	}}, istio.SpokeConfig{Namespace: namespace})
	if err != nil {
		return State{}, meshProblems(err)
	}
	s := spokeState(namespace)
	if s.want, err = istio.AllUnstructured(objects); err != nil {
		return State{}, err
	}
	err = s.read(ctx, conn, meshconfig.PartIstio, ofAgent)
	return s, err
}

// Left returns what a hub, or a spoke, has of Istio's objects that agentctl or a principal has applied, and that it
// should no longer have. It is empty for a cluster without Istio.
func Left(ctx context.Context, conn *cli.Connection, namespace string, m meshconfig.Mesh) (State, error) {
	s := State{manager: meshobjects.Manager(namespace), places: istio.Scopes(m.Istio(namespace))}
	err := s.read(ctx, conn, meshconfig.PartIstio, func(o *unstructured.Unstructured) bool { return !ofAgent(o) })
	return left(s, err)
}

// LeftOnSpoke is Left of an agent.
func LeftOnSpoke(ctx context.Context, conn *cli.Connection, namespace string) (State, error) {
	s := spokeState(namespace)
	err := s.read(ctx, conn, meshconfig.PartIstio, ofAgent)
	return left(s, err)
}

func left(s State, err error) (State, error) {
	if cli.IsCRDMissing(err) {
		return State{}, nil
	}
	return s, err
}

func spokeState(namespace string) State {
	s := State{manager: meshobjects.Manager(namespace)}
	for _, kind := range []string{"AuthorizationPolicy", "DestinationRule", "PeerAuthentication", "ServiceEntry"} {
		s.places = append(s.places, meshobjects.Scope{Kind: kind, Resource: istio.Kinds()[kind], Namespace: namespace})
	}
	return s
}

// ofAgent reports whether an object is one of an agent: a hub that is a spoke of its own has both in a namespace.
func ofAgent(o *unstructured.Unstructured) bool {
	return o.GetName() == istio.DefaultAgentName || strings.HasPrefix(o.GetName(), istio.DefaultAgentName+"-")
}

// read reads what there is of what is ours.
func (s *State) read(ctx context.Context, conn *cli.Connection, part string,
	ours func(*unstructured.Unstructured) bool) error {
	var err error
	if s.target, err = registration.NewObjects(conn); err != nil {
		return err
	}
	for _, place := range s.places {
		doing := "list " + place.Resource.Resource
		if place.Namespace != "" {
			doing += " of namespace " + place.Namespace
		}
		list, err := s.target.Client.Resource(place.Resource).Namespace(place.Namespace).List(ctx, metav1.ListOptions{})
		if cli.IsCRDMissing(err) {
			product := map[string]string{meshconfig.PartIstio: "Istio", meshconfig.PartSPIRE: "spire-controller-manager"}[part]
			return fmt.Errorf("%s: the cluster at %s does not have the resources of %s: choose another with --context: %w", doing,
				s.target.Host, product, err)
		}
		if err != nil {
			return s.target.Explain(err, doing)
		}
		for i := range list.Items {
			if ours(&list.Items[i]) {
				s.have = append(s.have, &list.Items[i])
			}
		}
	}
	return nil
}

// Any reports whether any of it is there.
func (s State) Any() bool {
	return slices.ContainsFunc(s.have, func(o *unstructured.Unstructured) bool {
		return meshobjects.AppliedBy(o, s.manager)
	})
}

// Objects are those that there should be.
func (s State) Objects() []*unstructured.Unstructured { return s.want }

// Try has the API server try what Carry would do, and stores nothing.
func (s State) Try(ctx context.Context) error { return s.Carry(ctx, io.Discard, true) }

// Will says, before it is done, what Carry will do.
func (s State) Will() []string { return registration.Will(meshobjects.Plan(s.want, s.have, s.manager)) }

// Carry makes what there is what there should be, or says what it would do. A plan that is refused is an error.
func (s State) Carry(ctx context.Context, out io.Writer, dryRun bool) error {
	if s.target == nil {
		return nil // nothing was observed
	}
	plan := meshobjects.Plan(s.want, s.have, s.manager)
	writer := meshobjects.Writer{Client: s.target.Client, Manager: s.manager,
		Resources: map[string]schema.GroupVersionResource{}, DryRun: dryRun}
	for _, place := range s.places {
		writer.Resources[place.Kind] = place.Resource
	}
	return registration.CarryOut(out, plan, dryRun, func(done func(diff.Change[*unstructured.Unstructured])) error {
		if err := spire.Refusals(plan); err != nil {
			return err
		}
		for _, change := range plan {
			if _, err := writer.Write(ctx, change); err != nil {
				return s.target.Explain(err, change.Name)
			}
			done(change)
		}
		return nil
	})
}
