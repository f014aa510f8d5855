package install

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/istiosetup"
	meshcommand "github.com/argomesh/argomesh/cmd/agentctl/internal/mesh"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/cmd/internal/meshconfig"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/istio"
)

// istioFlags say which Istio of a cluster --with istio is about, and on the hub the way in.
type istioFlags struct {
	place            istiosetup.Place
	gateway, address string
	exposure         *cli.OneOf // nil on a spoke
}

func (f *istioFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.place.Namespace, "istio-namespace", istiosetup.DefaultNamespace,
		"namespace of istiod, for --with istio")
	cmd.Flags().StringVar(&f.place.Revision, "istio-revision", "",
		"revision of istiod, for --with istio (default that without a name)")
	for _, name := range []string{"istio-namespace", "istio-revision"} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
}

func (f *istioFlags) addHubFlags(cmd *cobra.Command) {
	f.exposure = &cli.OneOf{Allowed: []string{string(mesh.ExposurePassthrough), string(mesh.ExposureGateway)}}
	cmd.Flags().StringVar(&f.address, "address", "",
		"host:port at which agents reach the principal, with --with istio Istio's gateway; \"agentctl spoke install\""+
			" finds it, and it is kept, as values are (default the load balancer of its Service)")
	cmd.Flags().StringVar(&f.gateway, "istio-gateway", "",
		"NAMESPACE/NAME of the Deployment of Istio's gateway, for --with istio (default the only one)")
	cli.AddEnumFlag(cmd, f.exposure, "istio-exposure", "",
		"passthrough: the principal ends the TLS of agents; gateway: Istio's gateway does (default passthrough)")
	for _, name := range []string{"address", "istio-gateway"} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
}

// given reports whether a flag says what the gateway is.
func (f *istioFlags) given() bool {
	return f.gateway != "" || f.exposure != nil && f.exposure.Value != ""
}

// observe returns what the Istio of a side is told.
func (f *istioFlags) observe(ctx context.Context, s *side) (istiosetup.Istio, error) {
	is, err := istiosetup.Observe(ctx, s.client, f.place)
	if apierrors.IsNotFound(err) {
		return is, fmt.Errorf("--with istio: istiod is not there (%s): install Istio first, since --with istio configures one"+
			" that is there; --istio-namespace and --istio-revision say where", cli.OneLine(err))
	}
	if err != nil {
		return is, s.explain(err, "look at Istio")
	}
	return is, nil
}

// onHub returns values with those that follow from the Istio of the hub.
func (f *istioFlags) onHub(ctx context.Context, s *side, class, trustDomain string, argo argocd.State,
	values map[string]any) (map[string]any, error) {
	if trustDomain == "" {
		return nil, errors.New("--with istio: --trust-domain is missing: that of the mesh, and of the hub's SPIRE")
	}
	td, err := spiffeid.TrustDomainFromString(trustDomain)
	if err != nil {
		return nil, fmt.Errorf("--trust-domain %q: %w", trustDomain, err)
	}
	known, err := s.known(values)
	if err != nil {
		return nil, err
	}
	h, is, err := f.hub(ctx, s, class, td, argo, known)
	if err != nil {
		return nil, err
	}
	base, err := h.Values()
	if err != nil {
		return nil, err
	}
	lacks := is.Lacks(td.Name())
	if !h.Gateway.SPIRE {
		lacks = append(lacks, fmt.Sprintf("the gateway %s has no identity of SPIRE (annotation inject.istio.io/templates: gateway,spire)",
			h.Gateway))
	}
	known = loader.MergeMaps(base, known)
	if f.address != "" {
		hub := map[string]any{"config": map[string]any{"mesh": map[string]any{"hub": f.address}}}
		known = loader.MergeMaps(loader.MergeMaps(known, hub), values)
	}
	if err := inIstio(known); err != nil {
		return nil, err
	}
	if len(lacks) > 0 {
		return nil, printSettings(s, known, lacks)
	}
	return known, isNotRegistered(ctx, s)
}

// hub returns where a principal with these values is in its Istio, and what that is told.
func (f *istioFlags) hub(ctx context.Context, s *side, class string, td spiffeid.TrustDomain, argo argocd.State,
	known map[string]any) (h istiosetup.Hub, is istiosetup.Istio, err error) {
	if is, err = f.observe(ctx, s); err != nil {
		return h, is, err
	}
	if class == "" {
		if class, err = spireClass(ctx, s); err != nil {
			return h, is, err
		}
	}
	was := istiosetup.WayOf(known)
	h = istiosetup.Hub{
		Namespace: s.namespace, TrustDomain: td, Address: cmp.Or(f.address, was.Address), Aliases: is.Aliases, Class: class,
		Exposure: mesh.Exposure(cmp.Or(f.exposure.Value, was.Exposure, string(mesh.ExposurePassthrough))),
		Callers:  callersOf(argo), At: f.place,
	}
	if address, _ := redisProxyOf(known); address != "" {
		if h.RedisPort, err = portOf(address); err != nil {
			return h, is, fmt.Errorf("config.envoy.redis: %w", err)
		}
	}
	all, err := istiosetup.Gateways(ctx, s.client)
	if err != nil {
		return h, is, s.explain(err, "look for Istio's gateway")
	}
	if h.Gateway, err = istiosetup.Choose(all, cmp.Or(f.gateway, was.Gateway(all))); err != nil {
		return h, is, err
	}
	return h, is, was.Keep(h)
}

// inIstio refuses values that keep the pod out of Istio.
func inIstio(known map[string]any) error {
	if istiosetup.Uses(known) {
		return nil
	}
	return errors.New("--with istio: the values have another identity.source, which is kept: give --set identity.source=istio, too")
}

// printSettings prints what Istio has to know before an install, as values of its chart.
func printSettings(s *side, known map[string]any, lacks []string) error {
	m, err := meshcommand.ConfigOf(s.namespace, known)
	if err != nil {
		return err
	}
	snapshot, err := m.Snapshot(nil)
	if err != nil {
		return err
	}
	settings, err := istio.SettingsFor(snapshot, m.Istio(s.namespace))
	if err != nil {
		return err
	}
	return lacking(s, settings, lacks)
}

// lacking prints the settings, and says why they are wanted.
func lacking(s *side, settings istio.Settings, lacks []string) error {
	if err := settings.Write(s.std.Out); err != nil {
		return err
	}
	return fmt.Errorf("--with istio: %s: give Istio what is printed above, and run this again", strings.Join(lacks, "; "))
}

// onSpoke returns values with those that follow from the Istio of a spoke.
func (f *istioFlags) onSpoke(ctx context.Context, s *side, ids []string,
	values map[string]any) (map[string]any, error) {
	is, err := f.observe(ctx, s)
	if err != nil {
		return nil, err
	}
	td, err := spiffeid.TrustDomainFromString(is.TrustDomain) // where the Agent is not known
	if len(ids) > 0 {
		var id spiffeid.ID
		id, err = identity.ParseID(ids[0])
		td = id.TrustDomain()
	}
	if err != nil {
		return nil, err
	}
	if lacks := is.Lacks(td.Name()); len(lacks) > 0 {
		return nil, lacking(s, istio.SpokeSettings(td), lacks)
	}
	known, err := s.known(values)
	if err != nil {
		return nil, err
	}
	known = loader.MergeMaps(f.place.SpokeValues(), known)
	return known, inIstio(known)
}

// planMesh plans the objects of the hub's Istio and SPIRE that the values have the principal keep: it cannot
// begin without an identity, and its ports are closed from the first moment on.
func planMesh(ctx context.Context, s *side, known map[string]any) (out []meshcommand.State, err error) {
	parts := []string{meshconfig.PartSPIRE, meshconfig.PartIstio}
	var agents map[identity.AgentName][]spiffeid.ID
	var m meshconfig.Mesh
	for _, part := range parts {
		if !istiosetup.Keeps(known, part) {
			continue
		}
		if len(out) == 0 {
			if m, err = meshcommand.ConfigOf(s.namespace, known); err != nil {
				return nil, err
			}
			if agents, err = meshcommand.Agents(ctx, s.conn); err != nil {
				return nil, err
			}
		}
		state, err := meshcommand.Observe(ctx, s.conn, s.namespace, m, part, agents)
		if err != nil {
			return nil, err
		}
		if err := state.Try(ctx); err != nil {
			return nil, err
		}
		out = append(out, state)
	}
	return out, nil
}

// isNotRegistered refuses a principal that has another SPIFFE ID already, by which agents know it.
func isNotRegistered(ctx context.Context, s *side) error {
	objects, err := registration.NewObjects(s.conn)
	if err != nil {
		return err
	}
	name, there, err := principalObjects(ctx, objects)
	if err != nil || len(there) == 0 {
		return err
	}
	return fmt.Errorf("--with istio: the principal is registered with SPIRE as %s, and in Istio it has the SPIFFE ID of its service"+
		" account: move the agents there by --principal-id, and remove that by \"agentctl identity revoke %s\" first", name, name)
}

// spireClass returns the class of the ClusterSPIFFEIDs that are there.
func spireClass(ctx context.Context, s *side) (string, error) {
	objects, err := registration.NewObjects(s.conn)
	if err != nil {
		return "", err
	}
	return objects.ClassName(ctx)
}

// portOf returns the port of host:port.
func portOf(address string) (uint16, error) {
	_, number, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	port, err := strconv.ParseUint(number, 10, 16)
	return uint16(port), err
}

// callersOf returns the service accounts of Argo CD that call the proxies of the principal.
func callersOf(argo argocd.State) (out []string) {
	out = append(out, "argocd-server")
	if argo.Server != nil {
		out[0] = cmp.Or(argo.Server.Spec.Template.Spec.ServiceAccountName, "default")
	}
	if argo.Controller || argo.Server == nil {
		out = append(out, controller)
	}
	return out
}

// controller is the application controller of Argo CD, and its service account.
const controller = "argocd-application-controller"

// outside says, for each program of Argo CD that calls the principal, what gives it a proxy of Istio if it has none.
func (f *istioFlags) outside(ctx context.Context, s *side, argo argocd.State) (told []string, err error) {
	if argo.Server != nil && !istiosetup.InMesh(argo.Server.Spec.Template) {
		line, err := f.inject(s, "deployment", argo.Server.Name)
		if err != nil {
			return nil, err
		}
		told = append(told, line)
	}
	set, err := s.client.AppsV1().StatefulSets(s.namespace).Get(ctx, controller, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return told, nil
	}
	if err != nil {
		return nil, s.explain(err, "look at "+controller)
	}
	if istiosetup.InMesh(set.Spec.Template) {
		return told, nil
	}
	line, err := f.inject(s, "statefulset", set.Name)
	return append(told, line), err
}

// inject says what gives the pods of a workload a proxy.
func (f *istioFlags) inject(s *side, kind, name string) (string, error) {
	labels, annotations := istiosetup.Injected(f.place)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{
		"metadata": map[string]any{"labels": labels, "annotations": annotations},
	}}})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %s has no proxy with an identity of SPIRE, so the principal does not let it in: kubectl -n %s patch %s %s"+
		" --type merge -p '%s', or the same where it is managed", kind, name, s.namespace, kind, name, patch), nil
}

// leftMesh returns what of Istio an uninstall has to remove, by the values of the release.
func leftMesh(ctx context.Context, s *side, values map[string]any, agent bool) (state meshcommand.State, err error) {
	switch {
	case agent && istiosetup.Uses(values):
		return meshcommand.LeftOnSpoke(ctx, s.conn, s.namespace)
	case agent || !istiosetup.Keeps(values, meshconfig.PartIstio):
		return state, nil
	}
	m, err := meshcommand.ConfigOf(s.namespace, values)
	if err != nil { // the rest of it may be in the environment
		return state, s.say("what Istio has for the principal stays, since config.mesh alone does not say where: %v", err)
	}
	return meshcommand.Left(ctx, s.conn, s.namespace, m)
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}
