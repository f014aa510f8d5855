package check

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
	"github.com/argomesh/argomesh/cmd/internal/admin"
	"github.com/argomesh/argomesh/cmd/internal/process"
	"github.com/argomesh/argomesh/cmd/internal/reasons"
	"github.com/argomesh/argomesh/identity/inspect"
	"github.com/argomesh/argomesh/mesh/spire"
)

// spiffeID is a ClusterSPIFFEID.
func spiffeID(name, class, template string, more map[string]any) *unstructured.Unstructured {
	spec := map[string]any{"className": class, "spiffeIDTemplate": template}
	for key, value := range more {
		spec[key] = value
	}
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}, "spec": spec}}
}

// healthy are the facts of one side on which nothing is wrong.
func healthy(side Side) *Facts {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	d := &appsv1.Deployment{}
	d.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	server := &appsv1.Deployment{}
	server.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"argocd-server", "--redis=argomesh-principal:6379"}}}
	f := &Facts{
		Side: side, Namespace: "argocd", Now: now, Clock: read[time.Time]{is: now}, Kubernetes: read[string]{is: "v1.36.1"},
		ArgoCD: read[argocd.State]{is: argocd.State{Server: server, Controller: true, Version: "v3.5.3", Terminal: true}}, Definitions: read[bool]{is: true},
		Chart:      ChartFacts{Version: "0.1.0", Rights: RightsFacts{Of: "service account x"}},
		Release:    read[release.State]{is: release.State{Revision: 1, Status: "deployed", Version: "0.1.0"}},
		Deployment: read[*appsv1.Deployment]{is: d}, Pods: read[[]corev1.Pod]{is: []corev1.Pod{pod}}, Mounts: map[string]string{},
		Asked: map[string]read[Readiness]{"pod": {is: Readiness{Ready: true}}},
		SPIRE: SPIREFacts{CSIDriver: read[bool]{is: true}, Served: read[bool]{is: true}},
		Network: NetworkFacts{Policies: read[[]networkingv1.NetworkPolicy]{is: []networkingv1.NetworkPolicy{redisPolicyOf("argocd-server"),
			redisPolicyOf(side.chart())}}},
		OfHub: HubFacts{
			Service: read[*corev1.Service]{is: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "argomesh-principal-stream"}}},
			Project: read[string]{is: "not-shared"},
		},
	}
	other := spiffeID("default", "spire", "spiffe://{{ .TrustDomain }}/x", nil)
	own := map[string]any{"workloadSelectorTemplates": []any{"k8s:sa:" + side.chart()}}
	id := "spiffe://edge.example/argomesh/agent/edge-1"
	federated := "hub.example"
	f.Config.is = map[string]any{"name": "edge-1", "mode": "managed", "access": map[string]any{"enabled": true},
		"redis":     map[string]any{"address": "argocd-redis:6379"},
		"principal": map[string]any{"spiffe_ids": []any{"spiffe://hub.example/argomesh/principal"}}}
	if side == Hub {
		id, federated = "spiffe://hub.example/argomesh/principal", "edge.example"
		own["dnsNameTemplates"] = []any{"argomesh-principal.argocd.svc"}
		f.Config.is = map[string]any{"redis": map[string]any{"address": "argocd-redis:6379"},
			"redis_proxy": map[string]any{"listen": "unix:///run/x"}}
		f.OfHub.Agents.is = []v1alpha1.Agent{agent("edge-1")}
	}
	own["federatesWith"] = []any{federated}
	f.SPIRE.IDs.is = []*unstructured.Unstructured{other, spiffeID("ours", "spire", id, own)}
	f.SPIRE.Federations.is = []*unstructured.Unstructured{{Object: map[string]any{"spec": map[string]any{"trustDomain": federated}}}}
	return f
}

func redisPolicyOf(from string) networkingv1.NetworkPolicy {
	selector := func(name string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": name}}
	}
	who := selector(from)
	return networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: from}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: selector("argocd-redis"),
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &who}}}},
	}}
}

// agent is one that is as it should be.
func agent(name string) v1alpha1.Agent {
	a := v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: name}}
	a.Spec.Mode = v1alpha1.ModeManaged
	a.Spec.Identity.SPIFFEIDs = []string{"spiffe://edge.example/argomesh/agent/" + name}
	a.Spec.Access = &v1alpha1.AgentAccess{Enabled: true, Exec: true}
	a.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "AsExpected"},
		{Type: v1alpha1.ConditionConnected, Status: metav1.ConditionTrue, Reason: "Connected"},
		{Type: v1alpha1.ConditionOverBudget, Status: metav1.ConditionFalse, Reason: "AsExpected"},
	}
	return a
}

func waiting(reason string) []corev1.ContainerStatus {
	return []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
}

// holds has the program say something of its SVID or a bundle.
func holds(level inspect.Level, reason string) func(*Facts) {
	return func(f *Facts) {
		asked := f.Asked["pod"]
		asked.is.Identity.is.Findings = []inspect.Finding{
			{Level: inspect.Fine, Reason: inspect.ReasonBundleMissing, About: "hub.example", Says: "is trusted"},
			{Level: level, Reason: reason, About: "edge.example", Says: "is not", Cure: "mend it"},
		}
		f.Asked["pod"] = asked
	}
}

// broken are ways in which a healthy side breaks, by the word that says so.
var broken = map[string]struct {
	side  Side
	level Level
	how   func(*Facts)
}{
	"KubernetesTooOld":  {Hub, Problem, func(f *Facts) { f.Kubernetes.is = "v1.29.8" }},
	"NamespaceMissing":  {Hub, Problem, func(f *Facts) { f.NamespaceState.is = Missing }},
	"ArgoCDMissing":     {Spoke, Problem, func(f *Facts) { f.Definitions.is = false }},
	"ServerMissing":     {Hub, Warning, func(f *Facts) { f.ArgoCD.is.Server = nil }},
	"ControllerMissing": {Spoke, Problem, func(f *Facts) { f.ArgoCD.is.Controller = false }},
	"ArgoCDTooOld":      {Spoke, Problem, func(f *Facts) { f.ArgoCD.is.Version = "v3.1.9" }},
	"CSIDriverMissing":  {Spoke, Problem, func(f *Facts) { f.SPIRE.CSIDriver.is = false }},
	"ClocksApart":       {Spoke, Problem, func(f *Facts) { f.Clock.is = f.Now.Add(-time.Minute) }},
	"SPIREMissing":      {Spoke, Warning, func(f *Facts) { f.SPIRE.Served.is = false }},
	"WrongClass":        {Spoke, Problem, func(f *Facts) { f.SPIRE.IDs.is[1].Object["spec"].(map[string]any)["className"] = "" }},
	"NotRegistered":     {Spoke, Warning, func(f *Facts) { f.SPIRE.IDs.is = f.SPIRE.IDs.is[:1] }},
	"DNSNameMissing":    {Hub, Problem, func(f *Facts) { delete(f.SPIRE.IDs.is[1].Object["spec"].(map[string]any), "dnsNameTemplates") }},
	"NamespacesNotWatched": {Hub, Warning, func(f *Facts) {
		f.OfHub.Agents.is = []v1alpha1.Agent{agent("edge-2")}
		f.OfHub.Agents.is[0].Spec.Mode = v1alpha1.ModeAutonomous
		f.ArgoCD.is.Namespaces = "team-*, edge-1"
	}},
	"TerminalOff": {Hub, Warning, func(f *Facts) {
		f.ArgoCD.is.Terminal = false
	}},
	"NotFederated":   {Spoke, Problem, func(f *Facts) { f.SPIRE.Federations.is = nil }},
	"NotInstalled":   {Hub, Problem, func(f *Facts) { f.Deployment.is = nil }},
	"RightsMissing":  {Hub, Problem, func(f *Facts) { f.Chart.Rights.Lacks.is = []string{"get secrets"} }},
	"OlderChart":     {Hub, Warning, func(f *Facts) { f.Chart.Version = "0.2.0" }},
	"ReleasePending": {Hub, Problem, func(f *Facts) { f.Release.is.Status = "pending-upgrade" }},
	"ObjectsChanged": {Hub, Problem, func(f *Facts) { f.Differs.is = []string{"Role argomesh-principal"} }},
	"PodNotReady":    {Hub, Problem, func(f *Facts) { f.Deployment.is.Status.AvailableReplicas = 0 }},
	"ImageNotPulled": {Hub, Problem, func(f *Facts) {
		f.Deployment.is.Status.AvailableReplicas = 0
		f.Pods.is[0].Status.ContainerStatuses = waiting("ImagePullBackOff")
	}},
	"PodNotScheduled": {Hub, Problem, func(f *Facts) {
		f.Deployment.is.Status.AvailableReplicas = 0
		f.Pods.is[0].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
	}},
	"VolumeNotMounted": {Hub, Problem, func(f *Facts) {
		f.Deployment.is.Status.AvailableReplicas = 0
		f.Mounts["pod"] = "driver name csi.spiffe.io not found"
	}},
	"ProgramNotReady": {Hub, Problem, func(f *Facts) {
		asked := f.Asked["pod"]
		asked.is.Checks = append(asked.is.Checks, struct {
			Name   string `json:"name"`
			Ready  bool   `json:"ready"`
			Reason string `json:"reason"`
		}{Name: "identity", Reason: "no SVID"})
		f.Asked["pod"] = asked
	}},
	"HeaderMissing": {Hub, Warning, func(f *Facts) {
		asked := f.Asked["pod"]
		metrics := strings.Repeat("argomesh_agent_connected{agent=\"edge-1\"} 1\n", 50000) + headerless + " 3\n"
		is, _ := series(strings.NewReader(metrics), headerless)
		asked.is.Headerless = is[headerless]
		f.Asked["pod"] = asked
	}},
	"ConnectionCut": {Spoke, Warning, func(f *Facts) {
		asked := f.Asked["pod"]
		asked.is.Cuts, asked.is.CutAfter = 3, 60
		f.Asked["pod"] = asked
	}},
	"SVIDExpired":    {Hub, Problem, holds(inspect.Problem, inspect.ReasonSVIDExpired)},
	"SVIDExpiring":   {Spoke, Warning, holds(inspect.Warning, inspect.ReasonSVIDExpiring)},
	"SVIDInvalid":    {Spoke, Problem, holds(inspect.Problem, inspect.ReasonSVIDInvalid)},
	"BundleMissing":  {Hub, Problem, holds(inspect.Problem, inspect.ReasonBundleMissing)},
	"BundleExpired":  {Spoke, Problem, holds(inspect.Problem, inspect.ReasonBundleExpired)},
	"JWTKeysMissing": {Hub, Warning, holds(inspect.Warning, inspect.ReasonJWTKeysMissing)},
	"SidecarWithoutSPIRE": {Hub, Problem, func(f *Facts) {
		f.Pods.is[0].Spec.InitContainers = []corev1.Container{{Name: "istio-proxy"}}
	}},
	"MeshPermissive": {Hub, Problem, func(f *Facts) {
		f.Network.PeerAuthentications.is = []*unstructured.Unstructured{{Object: map[string]any{"spec": map[string]any{"mtls": map[string]any{"mode": "PERMISSIVE"}}}}}
	}},
	"LoadBalancerPending": {Hub, Problem, func(f *Facts) { f.OfHub.Service.is.Spec.Type = corev1.ServiceTypeLoadBalancer }},
	"ServiceMissing":      {Hub, Problem, func(f *Facts) { f.OfHub.Service.is = nil }},
	"RedisNotOurs":        {Hub, Problem, func(f *Facts) { f.ArgoCD.is.Server.Spec.Template.Spec.Containers[0].Args = nil }},
	"RedisProxyOff":       {Hub, Warning, func(f *Facts) { delete(f.Config.is, "redis_proxy") }},
	"RedisShut":           {Spoke, Problem, func(f *Facts) { f.Network.Policies.is = f.Network.Policies.is[:1] }},
	"LiveAccessOff":       {Spoke, Warning, func(f *Facts) { delete(f.Config.is, "access") }},
	"NoProjectAdmits": {Hub, Problem, func(f *Facts) {
		f.Refused.is = []Finding{found(Problem, "NoProjectAdmits", "Application edge-1/shop", "is not sent", "")}
	}},
	"PolicyRefuses": {Spoke, Warning, func(f *Facts) {
		f.Refused.is = []Finding{found(Warning, "PolicyRefuses", "Application argocd/shop", "is refused", "allow it")}
	}},
	// Of an Agent's status.
	"RefusedName": {Hub, Problem, func(f *Facts) {
		f.OfHub.Agents.is[0].Status.Conditions[1] = metav1.Condition{Type: v1alpha1.ConditionConnected, Status: metav1.ConditionFalse, Reason: "RefusedName"}
	}},
	"Bytes": {Hub, Problem, func(f *Facts) {
		f.OfHub.Agents.is[0].Status.Conditions[2] = metav1.Condition{Type: v1alpha1.ConditionOverBudget, Status: metav1.ConditionTrue, Reason: "Bytes"}
	}},
	"SettingDiffers": {Hub, Warning, func(f *Facts) {
		f.OfHub.Agents.is[0].Status.Conditions[2] = metav1.Condition{Type: v1alpha1.ConditionMappingIgnored, Status: metav1.ConditionTrue, Reason: "SettingDiffers"}
	}},
	"CascadeHeld": {Hub, Problem, func(f *Facts) {
		f.OfHub.Agents.is[0].Status.Conditions[2] = metav1.Condition{Type: v1alpha1.ConditionDeletionsHeld, Status: metav1.ConditionTrue, Reason: "CascadeHeld"}
	}},
	"NotOwned": {Hub, Problem, func(f *Facts) {
		f.OfHub.Agents.is[0].Status.Counts.Parked = 1
		f.OfHub.Agents.is[0].Status.Parked = []v1alpha1.ParkedObject{{Kind: "Application", Name: "shop", Reason: "NotOwned"}}
	}},
	"Parked":         {Hub, Problem, func(f *Facts) { f.OfHub.Agents.is[0].Status.Counts.Parked = 2 }},
	"NeverConnected": {Hub, Problem, func(f *Facts) { f.OfHub.Agents.is[0].Status = v1alpha1.AgentStatus{} }},
}

func words(all []Finding) (out []string) {
	for _, f := range all {
		if f.Level != Fine {
			out = append(out, f.Word)
		}
	}
	return out
}

// Each thing that can be wrong is found, alone, with what helps; and nothing is found where nothing
// is wrong.
func TestChecks(t *testing.T) {
	t.Parallel()
	for _, side := range []Side{Hub, Spoke} {
		if got := words(Run(healthy(side), false)); len(got) > 0 {
			t.Fatalf("of a healthy %s is found %q", side, got)
		}
	}
	for word, b := range broken {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			f := healthy(b.side)
			b.how(f)
			all := Run(f, false)
			if got := words(all); !slices.Equal(got, []string{word}) {
				t.Fatalf("found are %q", got)
			}
			i := slices.IndexFunc(all, func(f Finding) bool { return f.Level != Fine })
			got := all[i]
			if got.Level != b.level || got.Cure == "" || got.Says == "" || got.About == "" || got.Side != b.side ||
				!strings.HasPrefix(got.See, "see "+reasons.Page+"#") {
				t.Errorf("it says %+v, want level %s", got, b.level)
			}
		})
	}
}

// pairs are ways in which hub and spoke do not agree.
var pairs = map[string]func(hub, spoke *Facts){
	"ClocksApart":  func(hub, _ *Facts) { hub.Clock.is = hub.Now.Add(time.Minute) },
	"AgentMissing": func(_, spoke *Facts) { spoke.Config.is["name"] = "edge-7" },
	"OtherPrincipal": func(_, spoke *Facts) {
		spoke.Config.is["principal"] = map[string]any{"spiffe_ids": []any{"spiffe://elsewhere.example/argomesh/principal"}}
	},
	"RefusedMode": func(_, spoke *Facts) { spoke.Config.is["mode"] = "autonomous" },
	"OtherSPIFFEID": func(_, spoke *Facts) {
		spoke.SPIRE.IDs.is[1].Object["spec"].(map[string]any)["spiffeIDTemplate"] = "spiffe://edge.example/other"
	},
	"LiveAccessOff":    func(hub, _ *Facts) { hub.OfHub.Agents.is[0].Spec.Access = nil },
	"DefaultNotShared": func(hub, _ *Facts) { hub.OfHub.Project.is = "shared" },
}

func TestChecksOfBoth(t *testing.T) {
	t.Parallel()
	if got := words(RunBoth(healthy(Hub), healthy(Spoke))); len(got) > 0 {
		t.Fatalf("of a healthy pair is found %q", got)
	}
	for word, how := range pairs {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			hub, spoke := healthy(Hub), healthy(Spoke)
			how(hub, spoke)
			all := RunBoth(hub, spoke)
			if got := words(all); !slices.Equal(got, []string{word}) {
				t.Fatalf("found are %q", got)
			}
			if got := all[slices.IndexFunc(all, func(f Finding) bool { return f.Word == word })]; got.Cure == "" || got.See == "" {
				t.Errorf("it says %+v", got)
			}
		})
	}
	// The spoke takes default by a pattern, too.
	hub, spoke := healthy(Hub), healthy(Spoke)
	hub.OfHub.Project.is, spoke.Config.is["policy"] = "shared", map[string]any{"adopt": []any{"appproject/*"}}
	if got := words(RunBoth(hub, spoke)); len(got) > 0 {
		t.Errorf("found are %q", got)
	}
}

// Each word of agentctl check has a case here.
func TestEachWordIsTried(t *testing.T) {
	t.Parallel()
	for _, e := range reasons.All() {
		_, one := broken[e.Word]
		_, path := paths[e.Word]
		if e.Kind == reasons.Check && !one && !path && pairs[e.Word] == nil {
			t.Errorf("%s is tried by no case", e.Word)
		}
	}
}

// What could not be read is unknown, never well.
func TestUnread(t *testing.T) {
	t.Parallel()
	denied := errors.New("forbidden")
	for _, side := range []Side{Hub, Spoke} {
		f := healthy(side)
		f.Clock.err, f.ArgoCD.err, f.Definitions.err, f.Release.err, f.Differs.err = denied, denied, denied, denied, denied
		f.Deployment.err, f.Pods.err, f.SPIRE.CSIDriver.err, f.SPIRE.Served.err, f.Network.Policies.err = denied, denied, denied, denied, denied
		f.Network.PeerAuthentications.err, f.OfHub.Agents.err, f.OfHub.Service.err, f.Refused.err, f.Kubernetes.err = denied, denied, denied, denied, denied
		f.NamespaceState.err, f.Config.err, f.Chart.Rights.Lacks.err = denied, denied, denied
		f.Asked = map[string]read[Readiness]{"pod": {err: denied}, "older": {is: Readiness{Identity: read[inspect.Held]{err: denied}}}}
		for _, got := range Run(f, false) {
			if got.Level == Problem || got.Level == Unknown && (got.Cure == "" || !strings.Contains(got.Says, "forbidden")) {
				t.Errorf("it says %+v", got)
			}
			if got.Word == "ProgramNotReady" && got.Level == Fine && strings.Contains(got.About, "older") {
				continue // of which only the identity could not be read
			}
			if got.Level == Fine && !slices.Contains([]string{"ArgoCDTooOld", "NotRegistered", "NotFederated", "DNSNameMissing"}, got.Word) {
				t.Errorf("although nothing could be read it says %+v", got)
			}
		}
	}
}

// What is not there, as far as it may be read, is unknown where it may not be read.
func TestMayNotBeRead(t *testing.T) {
	t.Parallel()
	denied := errors.New("forbidden")
	for word, how := range map[string]func(*Facts){
		"ServerMissing": func(f *Facts) { f.ArgoCD.is.Unread.Programs = denied }, "ControllerMissing": func(f *Facts) { f.ArgoCD.is.Unread.Programs = denied },
		"TerminalOff":          func(f *Facts) { f.ArgoCD.is.Unread.Settings = denied },
		"NamespacesNotWatched": func(f *Facts) { f.ArgoCD.is.Unread.Params = denied }, "RedisProxyOff": func(f *Facts) { f.Config.err = denied },
		"LiveAccessOff": func(f *Facts) { f.Config.err = denied },
	} {
		f := healthy(broken[word].side)
		broken[word].how(f)
		how(f)
		all := Run(f, false)
		i := slices.IndexFunc(all, func(f Finding) bool { return f.Word == word && f.Level != Fine })
		if i < 0 || all[i].Level != Unknown || !strings.Contains(all[i].Says, "forbidden") {
			t.Errorf("%s: found are %+v", word, all)
		}
	}
	// What is there is well, whatever else may not be read.
	for _, side := range []Side{Hub, Spoke} {
		f := healthy(side)
		f.ArgoCD.is.Unread = argocd.Unread{Programs: denied, Params: denied}
		if got := words(Run(f, false)); len(got) > 0 {
			t.Errorf("of a healthy %s is found %q", side, got)
		}
	}
	hub, spoke := healthy(Hub), healthy(Spoke)
	hub.OfHub.Project.err = denied
	if got := RunBoth(hub, spoke); !slices.ContainsFunc(got, func(f Finding) bool { return f.Word == "DefaultNotShared" && f.Level == Unknown }) {
		t.Errorf("of a hub that does not say whether default is shared is found %+v", got)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		levels []Level
		code   int
	}{
		{nil, 0}, {[]Level{Fine, Warning}, 0}, {[]Level{Fine, Unknown, Warning}, 3}, {[]Level{Unknown, Problem, Fine}, 1},
	} {
		var all []Finding
		for _, l := range tc.levels {
			all = append(all, Finding{Level: l})
		}
		Sort(all)
		code := 0
		if err := verdict(all); err != nil {
			code = 1
			var coded *process.CodeError
			if errors.As(err, &coded) {
				code = coded.Code
			}
		}
		if code != tc.code {
			t.Errorf("%v end with %d, want %d", tc.levels, code, tc.code)
		}
	}
}

func TestShow(t *testing.T) {
	t.Parallel()
	all := []Finding{
		{Level: Problem, Word: "RedisShut", Side: Spoke, About: "NetworkPolicy x", Says: "keeps\nout", Cure: "open it"},
		{Level: Fine, Word: "Connected", Side: Hub, About: "Agent y", Says: "is connected"},
	}
	var out bytes.Buffer
	if err := show(&out, all, false); err != nil {
		t.Fatal(err)
	}
	want := "problem: spoke: NetworkPolicy x keeps out (RedisShut); cure: open it\n1 of 2 things are as they should be\n"
	if strings.ReplaceAll(out.String(), `keeps\nout`, "keeps out") != want {
		t.Errorf("it shows %q, want %q", out.String(), want)
	}
}

// The answer of /readyz is read whether it says ready or not, that of /identity, and of a principal what its
// metrics say. A program that does not know /identity is asked for the rest.
func TestReadiness(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"/metrics":  headerless + " 7\n" + cutSeconds + " 240\n" + cuts + " 4\n",
		"/readyz":   `{"ready":false,"checks":[{"name":"identity","ready":false,"reason":"no SVID"}]}`,
		"/identity": `{"findings":[{"level":"problem","reason":"BundleMissing","about":"hub.example","says":"is not trusted","cure":"federate"}]}`,
	}
	serve := func(knows ...string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case !slices.Contains(knows, r.URL.Path):
				w.WriteHeader(http.StatusNotFound)
			case r.URL.Path == "/readyz":
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = w.Write([]byte(answers[r.URL.Path]))
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	got, err := readiness(t.Context(), serve("/metrics", "/readyz", "/identity"), Hub)
	want := []inspect.Finding{{Level: inspect.Problem, Reason: "BundleMissing", About: "hub.example", Says: "is not trusted", Cure: "federate"}}
	if err != nil || got.Identity.err != nil || !slices.Equal(got.Identity.is.Findings, want) {
		t.Errorf("it says %+v, %v", got.Identity, err)
	}
	earlier := serve("/metrics", "/readyz")
	for side, want := range map[Side]Readiness{Hub: {Headerless: 7}, Spoke: {Cuts: 4, CutAfter: 60}} {
		got, err := readiness(t.Context(), earlier, side)
		if err != nil || got.Ready || len(got.Checks) != 1 || got.Checks[0].Reason != "no SVID" || got.Headerless != want.Headerless ||
			got.Cuts != want.Cuts || got.CutAfter != want.CutAfter || got.Identity.err == nil {
			t.Errorf("%s: got %+v, %v", side, got, err)
		}
	}
}

// A registration counts as ours by its label, too, when it is compared with the others.
func TestClassIgnoresOurOthers(t *testing.T) {
	t.Parallel()
	f := healthy(Spoke)
	labelled := spiffeID("edge-9", "another", "spiffe://edge.example/x", nil)
	labelled.SetLabels(map[string]string{spire.RegistrationLabel: "edge-9"})
	f.SPIRE.IDs.is = append(f.SPIRE.IDs.is, labelled)
	if got := words(classes(f)); len(got) > 0 {
		t.Errorf("found are %q", got)
	}
}

// An agent that stands by is as it should be: the chart has two of them.
func TestStandbyIsWell(t *testing.T) {
	for reason, want := range map[string]Level{admin.Standby: Fine, "the hub is away": Warning} {
		f := &Facts{Side: Spoke, Asked: map[string]read[Readiness]{"pod": {}}}
		is := f.Asked["pod"]
		is.is.Checks = append(is.is.Checks, struct {
			Name   string `json:"name"`
			Ready  bool   `json:"ready"`
			Reason string `json:"reason"`
		}{Name: "principal", Ready: true, Reason: reason})
		f.Asked["pod"] = is
		if got := programs(f); len(got) != 1 || got[0].Level != want {
			t.Errorf("%q is %+v, want one of level %v", reason, got, want)
		}
	}
}
