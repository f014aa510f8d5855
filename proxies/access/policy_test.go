package access_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/proxies/access"
)

// call parses "VERB target" with header lines behind it.
func call(t *testing.T, line string, header ...string) access.Request {
	t.Helper()
	method, target, _ := strings.Cut(line, " ")
	h := http.Header{}
	for _, one := range header {
		name, value, _ := strings.Cut(one, ": ")
		h.Add(name, value)
	}
	r, err := access.Parse(method, target, h)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func policy(t *testing.T, side access.Side, config access.Config) *access.Policy {
	t.Helper()
	p, err := access.New(side, config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDecide(t *testing.T) {
	const (
		web = "/api/v1/namespaces/web"
		vmi = "/apis/subresources.kubevirt.io/v1/namespaces/web/virtualmachineinstances/v"
		all = access.CommonRule
	)
	on := func(change func(*access.Config)) access.Config {
		c := access.Config{Enabled: true}
		if change != nil {
			change(&c)
		}
		return c
	}
	writes := on(func(c *access.Config) { c.Writes = true })
	everything := on(func(c *access.Config) {
		c.Writes, c.Secrets, c.Tokens, c.Proxy, c.Exec, c.EphemeralContainers, c.Nodes = true, v1alpha1.SecretsOn, true, true, true, true, true
		c.Rules = []access.Rule{{Name: "everything", Groups: []string{"*"}, Resources: []string{"*"}}}
	})
	everythingBut := func(change func(*access.Config)) access.Config {
		c := everything
		change(&c)
		return c
	}
	upgrade := []string{"upgrade: websocket"}
	shop := on(func(c *access.Config) {
		c.Writes, c.Secrets = true, v1alpha1.SecretsOn
		c.Rules = []access.Rule{
			{Name: "look", Verbs: []string{"get", "list", "watch"}, Namespaces: []string{"web"}},
			{Name: "scale", Verbs: []string{"patch", "update"}, Groups: []string{"apps"}, Resources: []string{"*/scale"}, Namespaces: []string{"web", "api"}},
			{Name: "one", Verbs: []string{"get", "list", "patch"}, Groups: []string{""}, Resources: []string{"secrets"}, Namespaces: []string{"api"}, Names: []string{"shared"}},
			{Name: "kafka", Groups: []string{"kafka.strimzi.io"}, Resources: []string{"*"}},
		}
	})
	type want struct {
		allowed bool
		rule    string
	}
	yes := func(rule string) want { return want{true, rule} }
	no := func(rule string) want { return want{false, rule} }
	tests := map[string]struct {
		config access.Config
		call   string
		header []string
		want   want
	}{
		"no object without being enabled":      {access.Config{}, "GET " + web + "/pods", nil, no(access.RuleEnabled)},
		"nor health":                           {access.Config{}, "GET /readyz", nil, no(access.RuleEnabled)},
		"nor OpenAPI":                          {access.Config{}, "GET /openapi/v3/api/v1", nil, no(access.RuleEnabled)},
		"nor what I may":                       {access.Config{}, "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", nil, no(access.RuleEnabled)},
		"but the version":                      {access.Config{}, "GET /version", nil, yes(access.RuleDiscovery)},
		"and the groups":                       {access.Config{}, "GET /apis?timeout=32s", nil, yes(access.RuleDiscovery)},
		"and the core":                         {access.Config{}, "HEAD /api/v1/", nil, yes(access.RuleDiscovery)},
		"and a group of Kubernetes":            {access.Config{}, "GET /apis/apps/v1", nil, yes(access.RuleDiscovery)},
		"not as somebody else":                 {access.Config{Impersonate: []string{"a"}}, "GET /apis", []string{"Impersonate-User: a"}, no(access.RuleEnabled)},
		"nor with a post":                      {access.Config{}, "POST /apis", nil, no(access.RuleEnabled)},
		"nor with an upgrade":                  {access.Config{}, "GET /apis", upgrade, no(access.RuleEnabled)},
		"nor what only begins like discovery":  {access.Config{}, "GET /versions", nil, no(access.RuleEnabled)},
		"a switch alone enables nothing":       {access.Config{Writes: true, Exec: true}, "GET " + web + "/pods", nil, no(access.RuleEnabled)},
		"version":                              {on(nil), "GET /version", nil, yes(access.RuleDiscovery)},
		"the groups":                           {on(nil), "GET /apis", nil, yes(access.RuleDiscovery)},
		"the core":                             {on(nil), "HEAD /api", nil, yes(access.RuleDiscovery)},
		"the resources of a group":             {on(nil), "GET /apis/apps/v1?timeout=32s", nil, yes(access.RuleDiscovery)},
		"OpenAPI of a group":                   {on(nil), "GET /openapi/v3/apis/apps/v1", nil, yes(access.RuleDiscovery)},
		"health":                               {on(nil), "GET /readyz", nil, yes(access.RuleDiscovery)},
		"metrics are none of it":               {on(nil), "GET /metrics", nil, no(access.RuleNonResource)},
		"nor profiles":                         {everything, "GET /debug/pprof/heap", nil, no(access.RuleNonResource)},
		"nor what only begins like it":         {everything, "GET /apiservers", nil, no(access.RuleNonResource)},
		"nor a post":                           {everything, "POST /version", nil, no(access.RuleNonResource)},
		"a pod":                                {on(nil), "GET " + web + "/pods/p", nil, yes(all)},
		"its log":                              {on(nil), "GET " + web + "/pods/p/log?follow=true", nil, yes(all)},
		"a watch of deployments":               {on(nil), "GET /apis/apps/v1/deployments?watch=1", nil, yes(all)},
		"a custom resource is not common":      {on(nil), "GET /apis/kafka.strimzi.io/v1/namespaces/web/kafkas", nil, no(access.RuleDefault)},
		"nor is a group of the same resource":  {on(nil), "GET /apis/extensions/v1beta1/namespaces/web/deployments", nil, no(access.RuleDefault)},
		"a Secret":                             {on(nil), "GET " + web + "/secrets/s", nil, no(access.RuleSecrets)},
		"all Secrets":                          {on(nil), "GET /api/v1/secrets", nil, no(access.RuleSecrets)},
		"Secrets by the old watch":             {on(nil), "GET /api/v1/watch/secrets", nil, no(access.RuleSecrets)},
		"a new Secret":                         {writes, "POST " + web + "/secrets", nil, no(access.RuleSecrets)},
		"a Secret, switched on":                {on(func(c *access.Config) { c.Secrets = v1alpha1.SecretsOn }), "GET " + web + "/secrets/s", nil, yes(all)},
		"a new Secret needs both":              {on(func(c *access.Config) { c.Secrets = v1alpha1.SecretsOn }), "POST " + web + "/secrets", nil, no(access.RuleWrites)},
		"a token":                              {writes, "POST " + web + "/serviceaccounts/a/token", nil, no(access.RuleTokens)},
		"a token, switched on":                 {on(func(c *access.Config) { c.Tokens = true }), "POST " + web + "/serviceaccounts/a/token", nil, yes(all)},
		"a token review":                       {writes, "POST /apis/authentication.k8s.io/v1/tokenreviews", nil, no(access.RuleTokens)},
		"a certificate":                        {writes, "PUT /apis/certificates.k8s.io/v1/certificatesigningrequests/x/approval", nil, no(access.RuleTokens)},
		"who am I":                             {on(nil), "POST /apis/authentication.k8s.io/v1/selfsubjectreviews", nil, yes(all)},
		"can I":                                {on(nil), "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", nil, yes(all)},
		"can others":                           {on(nil), "POST /apis/authorization.k8s.io/v1/subjectaccessreviews", nil, no(access.RuleWrites)},
		"a service's proxy":                    {on(nil), "GET " + web + "/services/s/proxy/x", nil, no(access.RuleProxy)},
		"a custom proxy":                       {everything, "GET /apis/x.io/v1/namespaces/web/things/s/proxy", nil, yes("everything")},
		"a node's proxy needs all three":       {on(func(c *access.Config) { c.Proxy, c.Exec = true, true }), "GET /api/v1/nodes/n/proxy/pods", nil, no(access.RuleNodes)},
		"a kubelet behind a node's proxy":      {on(func(c *access.Config) { c.Proxy, c.Nodes = true, true }), "POST /api/v1/nodes/n/proxy/run/web/p/c?cmd=sh", nil, no(access.RuleExec)},
		"a node's proxy, all switched on":      {on(func(c *access.Config) { c.Proxy, c.Nodes, c.Exec = true, true, true }), "GET /api/v1/nodes/n/proxy/pods", nil, yes(all)},
		"a proxy takes any method":             {on(func(c *access.Config) { c.Proxy = true }), "DELETE " + web + "/pods/p/proxy/x", nil, yes(all)},
		"the old form of proxy":                {everything, "GET /api/v1/proxy/namespaces/web/services/s", nil, no(access.RuleProxy)},
		"exec over WebSocket":                  {writes, "GET " + web + "/pods/p/exec?command=sh", nil, no(access.RuleExec)},
		"exec over SPDY":                       {writes, "POST " + web + "/pods/p/exec?command=sh", nil, no(access.RuleExec)},
		"attach":                               {writes, "GET " + web + "/pods/p/attach", nil, no(access.RuleExec)},
		"port-forward":                         {writes, "POST " + web + "/pods/p/portforward", nil, no(access.RuleExec)},
		"port-forward of another group":        {writes, "GET /apis/subresources.kubevirt.io/v1/namespaces/web/virtualmachineinstances/v/portforward/80", nil, no(access.RuleExec)},
		"exec, switched on, is no write":       {on(func(c *access.Config) { c.Exec = true }), "POST " + web + "/pods/p/exec?command=sh", nil, yes(all)},
		"a console":                            {everythingBut(func(c *access.Config) { c.Exec = false }), "GET " + vmi + "/console", upgrade, no(access.RuleExec)},
		"a screen":                             {everythingBut(func(c *access.Config) { c.Exec = false }), "GET " + vmi + "/vnc", upgrade, no(access.RuleExec)},
		"a device":                             {everythingBut(func(c *access.Config) { c.Exec = false }), "GET " + vmi + "/usbredir", upgrade, no(access.RuleExec)},
		"a console by the old watch":           {everythingBut(func(c *access.Config) { c.Exec = false }), "GET /apis/subresources.kubevirt.io/v1/watch/namespaces/web/virtualmachineinstances/v/console", upgrade, no(access.RuleExec)},
		"a console that is a list":             {everythingBut(func(c *access.Config) { c.Exec = false }), "GET /apis/x.io/v1/console", upgrade, no(access.RuleExec)},
		"a console, switched on":               {everythingBut(func(c *access.Config) { c.Writes = false }), "GET " + vmi + "/console", upgrade, yes("everything")},
		"a console, where no rule covers it":   {on(func(c *access.Config) { c.Exec = true }), "GET " + vmi + "/console", upgrade, no(access.RuleDefault)},
		"a console in the words of a get":      {everythingBut(func(c *access.Config) { c.Exec = false }), "GET " + vmi + "/console", nil, yes("everything")},
		"a pod with an upgrade":                {on(nil), "GET " + web + "/pods/p", upgrade, no(access.RuleExec)},
		"an eviction with one is a write":      {on(func(c *access.Config) { c.Exec = true }), "POST " + web + "/pods/p/eviction", []string{"Upgrade: SPDY/3.1"}, no(access.RuleWrites)},
		"and no less a session":                {writes, "POST " + web + "/pods/p/eviction", []string{"Upgrade: SPDY/3.1"}, no(access.RuleExec)},
		"a watch over WebSocket":               {on(nil), "GET " + web + "/pods?watch=true", upgrade, yes(all)},
		"a log over WebSocket":                 {on(nil), "GET " + web + "/pods/p/log?follow=true", upgrade, yes(all)},
		"a log of another group":               {everythingBut(func(c *access.Config) { c.Exec = false }), "GET /apis/x.io/v1/namespaces/web/pods/p/log?follow=true", upgrade, no(access.RuleExec)},
		"a proxy over WebSocket":               {on(func(c *access.Config) { c.Proxy = true }), "GET " + web + "/services/s/proxy/x", upgrade, yes(all)},
		"discovery over WebSocket":             {everything, "GET /apis/subresources.kubevirt.io/v1", upgrade, no(access.RuleNonResource)},
		"an ephemeral container":               {writes, "PATCH " + web + "/pods/p/ephemeralcontainers", nil, no(access.RuleEphemeral)},
		"an ephemeral container, switched on":  {on(func(c *access.Config) { c.EphemeralContainers = true }), "PATCH " + web + "/pods/p/ephemeralcontainers", nil, yes(all)},
		"nodes":                                {on(nil), "GET /api/v1/nodes", nil, no(access.RuleNodes)},
		"what nodes use":                       {on(nil), "GET /apis/metrics.k8s.io/v1beta1/nodes", nil, no(access.RuleNodes)},
		"nodes, switched on":                   {on(func(c *access.Config) { c.Nodes = true }), "GET /api/v1/nodes", nil, yes(all)},
		"cordon needs both":                    {on(func(c *access.Config) { c.Nodes = true }), "PATCH /api/v1/nodes/n", nil, no(access.RuleWrites)},
		"a write":                              {on(nil), "DELETE " + web + "/pods/p", nil, no(access.RuleWrites)},
		"a write, switched on":                 {writes, "DELETE " + web + "/pods/p", nil, yes(all)},
		"an eviction":                          {writes, "POST " + web + "/pods/p/eviction", nil, yes(all)},
		"a role is not written":                {writes, "PATCH /apis/rbac.authorization.k8s.io/v1/namespaces/web/roles/r", nil, no(access.RuleDefault)},
		"nor a namespace":                      {writes, "DELETE /api/v1/namespaces/web", nil, no(access.RuleDefault)},
		"nor an Application":                   {writes, "DELETE /apis/argoproj.io/v1alpha1/namespaces/argocd/applications/a", nil, no(access.RuleDefault)},
		"nor a status":                         {writes, "PUT " + web + "/pods/p/status", nil, no(access.RuleDefault)},
		"nor a subresource nobody knows":       {writes, "GET " + web + "/pods/p/mystery", nil, no(access.RuleDefault)},
		"impersonation":                        {everything, "GET /version", []string{"Impersonate-User: jane"}, no(access.RuleImpersonation)},
		"impersonation of a listed user":       {on(func(c *access.Config) { c.Impersonate = []string{"jane"} }), "GET " + web + "/pods", []string{"Impersonate-User: jane"}, yes(all)},
		"not of a user that begins so":         {on(func(c *access.Config) { c.Impersonate = []string{"jane"} }), "GET " + web + "/pods", []string{"Impersonate-User: jane2"}, no(access.RuleImpersonation)},
		"not with groups":                      {on(func(c *access.Config) { c.Impersonate = []string{"jane"} }), "GET " + web + "/pods", []string{"Impersonate-User: jane", "Impersonate-Group: system:masters"}, no(access.RuleImpersonation)},
		"not with a UID":                       {on(func(c *access.Config) { c.Impersonate = []string{"jane"} }), "GET " + web + "/pods", []string{"Impersonate-User: jane", "Impersonate-Uid: 1"}, no(access.RuleImpersonation)},
		"not with extra fields":                {on(func(c *access.Config) { c.Impersonate = []string{"jane"} }), "GET " + web + "/pods", []string{"Impersonate-User: jane", "Impersonate-Extra-Scopes: x"}, no(access.RuleImpersonation)},
		"a controller of the hub reads":        {writes, "GET " + web + "/pods/p", []string{"User-Agent: argocd-application-controller/v3.5.3 (linux/amd64)"}, yes(all)},
		"a controller of the hub writes":       {writes, "PATCH /apis/apps/v1/namespaces/web/deployments/d", []string{"User-Agent: argocd-application-controller/v3.5.3 (linux/amd64)"}, no(access.RuleHubController)},
		"argocd-server writes":                 {writes, "PATCH /apis/apps/v1/namespaces/web/deployments/d", []string{"User-Agent: argocd-server/v3.5.3 (linux/amd64)"}, yes(all)},
		"in a namespace of a rule":             {shop, "GET " + web + "/pods", nil, yes("look")},
		"in another":                           {shop, "GET /api/v1/namespaces/api/pods", nil, no(access.RuleDefault)},
		"in all":                               {shop, "GET /api/v1/pods", nil, no(access.RuleDefault)},
		"the namespace itself":                 {shop, "GET " + web, nil, yes("look")},
		"no verb of a rule":                    {shop, "DELETE " + web + "/pods/p", nil, no(access.RuleDefault)},
		"a subresource of any":                 {shop, "PATCH /apis/apps/v1/namespaces/api/statefulsets/s/scale", nil, yes("scale")},
		"not what has it":                      {shop, "PATCH /apis/apps/v1/namespaces/api/statefulsets/s", nil, no(access.RuleDefault)},
		"a name of a rule":                     {shop, "GET /api/v1/namespaces/api/secrets/shared", nil, yes("one")},
		"another name":                         {shop, "GET /api/v1/namespaces/api/secrets/other", nil, no(access.RuleDefault)},
		"no name":                              {shop, "GET /api/v1/namespaces/api/secrets", nil, no(access.RuleDefault)},
		"a list of that name":                  {shop, "GET /api/v1/namespaces/api/secrets?fieldSelector=metadata.name%3Dshared", nil, yes("one")},
		"a patch":                              {shop, "PATCH /api/v1/namespaces/api/secrets/shared", []string{"Content-Type: application/merge-patch+json"}, yes("one")},
		"a server-side apply is a create too":  {shop, "PATCH /api/v1/namespaces/api/secrets/shared", []string{"Content-Type: application/apply-patch+yaml"}, no(access.RuleDefault)},
		"a custom resource of a rule":          {shop, "DELETE /apis/kafka.strimzi.io/v1/namespaces/any/kafkas?labelSelector=a", nil, yes("kafka")},
		"all resources still want the switch":  {on(func(c *access.Config) { c.Rules = everything.Rules }), "GET " + web + "/secrets/s", nil, no(access.RuleSecrets)},
		"all resources have every subresource": {everything, "PUT " + web + "/pods/p/status", nil, yes("everything")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, side := range []access.Side{access.Hub, access.Spoke} {
				d := policy(t, side, tt.config).Decide(call(t, tt.call, tt.header...))
				if diff := cmp.Diff(tt.want, want{d.Allowed, d.Rule}, cmp.AllowUnexported(want{})); diff != "" {
					t.Errorf("Decide(%s) (-want +got):\n%s\n%s", tt.call, diff, d.Message)
				}
				switch {
				case d.Side != side:
					t.Errorf("the %v decided, not the %v", d.Side, side)
				case d.Allowed && (d.Message != "" || d.Status() != nil):
					t.Errorf("it is allowed, with message %q and status %v", d.Message, d.Status())
				case !d.Allowed && !strings.HasPrefix(d.Message, "refused by the "+side.String()+`, rule "`+tt.want.rule+`": `):
					t.Errorf("the message names not side and rule: %s", d.Message)
				}
			}
		})
	}
}

// While live access is off a spoke names Kubernetes' own kinds, and a hub passes on
// what the spoke shows.
func TestOwnKinds(t *testing.T) {
	off, on := access.Config{}, access.Config{Enabled: true}
	for name, tt := range map[string]struct {
		side         access.Side
		config       access.Config
		call         string
		allowed, own bool
	}{
		"the groups, of a spoke":         {access.Spoke, off, "GET /apis", true, true},
		"the core, of a spoke":           {access.Spoke, off, "GET /api/v1", true, true},
		"a group of Kubernetes":          {access.Spoke, off, "GET /apis/storage.k8s.io/v1", true, true},
		"a group of an extension":        {access.Spoke, off, "GET /apis/metrics.k8s.io/v1beta1", false, false},
		"a custom group":                 {access.Spoke, off, "GET /apis/kafka.strimzi.io", false, false},
		"a custom group, of a hub":       {access.Hub, off, "GET /apis/kafka.strimzi.io/v1", true, false},
		"a spoke that shows all":         {access.Spoke, on, "GET /apis", true, false},
		"a custom group that it shows":   {access.Spoke, on, "GET /apis/kafka.strimzi.io/v1", true, false},
		"the groups, with another slash": {access.Spoke, off, "GET /apis/", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			if d := policy(t, tt.side, tt.config).Decide(call(t, tt.call)); d.Allowed != tt.allowed || d.OwnKinds != tt.own {
				t.Errorf("it is decided %+v", d)
			}
		})
	}
}

// Kubernetes' own groups are those that its own clients know, and two that its server
// brings along.
func TestOwnGroups(t *testing.T) {
	for _, version := range scheme.Scheme.PrioritizedVersionsAllGroups() {
		if own := access.IsOwnGroup(version.Group); own == (version.Group == "imagepolicy.k8s.io") { // a webhook's, which no server has
			t.Errorf("group %q is Kubernetes' own: %v", version.Group, own)
		}
	}
	for group, own := range map[string]bool{"apiextensions.k8s.io": true, "apiregistration.k8s.io": true, "metrics.k8s.io": false, "argoproj.io": false, "gateway.networking.k8s.io": false} {
		if access.IsOwnGroup(group) != own {
			t.Errorf("group %q is Kubernetes' own: %v", group, !own)
		}
	}
}

// No call is allowed by a zero Policy, whatever it is.
func TestZeroPolicyRefuses(t *testing.T) {
	var p access.Policy
	if d := p.Decide(call(t, "GET /version")); d.Allowed || d.Rule != access.RuleEnabled {
		t.Errorf("it is decided %+v", d)
	}
}

// Masked Secrets are read, one by one or as a list, and nothing else is done with them,
// whatever else is on.
func TestMaskedSecrets(t *testing.T) {
	config := access.Config{
		Enabled: true, Writes: true, Secrets: v1alpha1.SecretsMasked, Tokens: true, Proxy: true, Exec: true,
		Rules: []access.Rule{{Name: "everything", Groups: []string{"*"}, Resources: []string{"*"}}},
	}
	const web = "/api/v1/namespaces/web"
	for _, side := range []access.Side{access.Hub, access.Spoke} {
		p := policy(t, side, config)
		for line, masked := range map[string]bool{
			"GET " + web + "/secrets/s":                                       true,
			"GET " + web + "/secrets":                                         true,
			"GET /api/v1/secrets?limit=5":                                     true,
			"GET " + web + "/secrets?fieldSelector=metadata.name%3Ds":         true,
			"GET " + web + "/secrets?watch=false":                             true,
			"GET " + web + "/configmaps/c":                                    false,
			"GET /apis/example.com/v1/namespaces/web/secrets/of-another-kind": false,
		} {
			if d := p.Decide(call(t, line)); !d.Allowed || d.Masked != masked {
				t.Errorf("%s: %s is decided %+v", side, line, d)
			}
		}
		for _, line := range []string{
			"GET " + web + "/secrets?watch=true", "GET /api/v1/secrets?watch=1", "GET /api/v1/watch/secrets", "GET /api/v1/watch/namespaces/web/secrets/s",
			"GET " + web + "/secrets?watch=true&fieldSelector=metadata.name%3Ds", "HEAD " + web + "/secrets/s", "GET " + web + "/secrets/s/status",
			"GET " + web + "/secrets/s/proxy", "GET /api/v1/proxy/namespaces/web/secrets/s", "POST " + web + "/secrets", "POST " + web + "/secrets?dryRun=All",
			"PUT " + web + "/secrets/s", "PATCH " + web + "/secrets/s", "PATCH " + web + "/secrets/s?dryRun=All", "DELETE " + web + "/secrets/s", "DELETE " + web + "/secrets",
		} {
			d := p.Decide(call(t, line))
			if d.Allowed || (d.Rule != access.RuleSecrets && d.Rule != access.RuleProxy) {
				t.Errorf("%s: %s is decided %+v", side, line, d)
			}
			if d.Rule == access.RuleSecrets && !strings.Contains(d.Message, "is masked: Secrets are read one by one or as a list, and neither watched nor changed") {
				t.Errorf("%s: %s is refused with %q", side, line, d.Message)
			}
		}
		if d := p.Decide(call(t, "GET "+web+"/secrets/s", "Connection: Upgrade", "Upgrade: websocket")); d.Allowed {
			t.Errorf("%s: an upgrade is decided %+v", side, d)
		}
	}
	if _, err := access.New(access.Hub, access.Config{Secrets: "keys"}); err == nil {
		t.Error("another word is taken")
	}
}

func TestRefusalsAreStatuses(t *testing.T) {
	hub := policy(t, access.Hub, access.Config{Enabled: true})
	spoke := policy(t, access.Spoke, access.Config{Enabled: true, TrackedOnly: true})
	tests := map[string]struct {
		d    access.Decision
		want metav1.Status
	}{
		"an object": {hub.Decide(call(t, "GET /api/v1/namespaces/web/secrets/s")), metav1.Status{
			Message: `secrets "s" is forbidden: refused by the hub, rule "secrets": access to Secrets is disabled; spec.access.secrets: masked of the Agent shows them without their values, if the spoke's owner allows that, too`,
			Details: &metav1.StatusDetails{Name: "s", Kind: "secrets"},
		}},
		"Secrets of the spoke": {spoke.Decide(call(t, "GET /api/v1/namespaces/web/secrets")), metav1.Status{
			Message: `secrets is forbidden: refused by the spoke, rule "secrets": access to Secrets is disabled; the spoke's owner shows them without their values by access.secrets: masked in the agent's configuration`,
			Details: &metav1.StatusDetails{Kind: "secrets"},
		}},
		"what masked Secrets do not have": {hub.Decide(call(t, "GET /api/v1/namespaces/web/secrets?watch=true")), metav1.Status{
			Message: `secrets is forbidden: refused by the hub, rule "secrets": access to Secrets is disabled; set spec.access.secrets of the Agent`,
			Details: &metav1.StatusDetails{Kind: "secrets"},
		}},
		"a subresource": {spoke.Decide(call(t, "POST /api/v1/namespaces/web/pods/p/exec")), metav1.Status{
			Message: `pods/exec "p" is forbidden: refused by the spoke, rule "exec": exec, attach and port-forward are disabled; set access.exec in the agent's configuration`,
			Details: &metav1.StatusDetails{Name: "p", Kind: "pods/exec"},
		}},
		"no rule": {spoke.Decide(call(t, "GET /apis/kafka.strimzi.io/v1/namespaces/web/kafkas")), metav1.Status{
			Message: `kafkas.kafka.strimzi.io is forbidden: refused by the spoke, rule "deny-by-default": no rule in access.rules in the agent's configuration covers list kafkas.kafka.strimzi.io in namespace web`,
			Details: &metav1.StatusDetails{Group: "kafka.strimzi.io", Kind: "kafkas"},
		}},
		"a path": {hub.Decide(call(t, "GET /metrics")), metav1.Status{
			Message: `forbidden: refused by the hub, rule "non-resource-paths": of paths other than objects only version, discovery, OpenAPI and health are open`,
			Details: &metav1.StatusDetails{},
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tt.d.Status()
			tt.want.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			tt.want.Status, tt.want.Code, tt.want.Reason = metav1.StatusFailure, 403, metav1.StatusReasonForbidden
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("Status() (-want +got):\n%s", diff)
			}
			if err := apierrors.FromObject(got); !apierrors.IsForbidden(err) {
				t.Errorf("a client takes it for %v", err)
			}
		})
	}
}

func TestGatewayStatuses(t *testing.T) {
	tests := map[string]struct {
		status *metav1.Status
		code   int32
		is     func(error) bool
	}{
		"bad gateway":            {access.BadGateway("x"), 502, apierrors.IsInternalError},
		"unavailable":            {access.Unavailable("x", 0), 503, apierrors.IsServiceUnavailable},
		"unavailable for a time": {access.Unavailable("x", 1500*time.Millisecond), 503, apierrors.IsServiceUnavailable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := apierrors.FromObject(tt.status)
			if tt.status.Code != tt.code || !tt.is(err) || err.Error() != "x" || tt.status.Kind != "Status" || tt.status.APIVersion != "v1" {
				t.Errorf("it is %+v, for a client %v", tt.status, err)
			}
		})
	}
	if seconds, ok := apierrors.SuggestsClientDelay(apierrors.FromObject(access.Unavailable("x", 1500*time.Millisecond))); !ok || seconds != 2 {
		t.Errorf("a client waits %d s (%v), want 2 s", seconds, ok)
	}
}

func TestConfigIsChecked(t *testing.T) {
	rule := func(change func(*access.Rule)) access.Config {
		r := access.Rule{Name: "a"}
		change(&r)
		return access.Config{Enabled: true, Rules: []access.Rule{r}}
	}
	many := make([]string, access.MaxItems+1)
	for i := range many {
		many[i] = "a"
	}
	tests := map[string]struct {
		config access.Config
		want   string
	}{
		"too many rules":             {access.Config{Rules: make([]access.Rule, access.MaxRules+1)}, "33 rules are more than 32"},
		"two rules of a name":        {access.Config{Rules: []access.Rule{{Name: "a"}, {Name: "a"}}}, `the name "a" is taken`},
		"no name":                    {access.Config{Rules: []access.Rule{{}}}, "rules[0]: name"},
		"a name that is ours":        {rule(func(r *access.Rule) { r.Name = access.RuleSecrets }), "is built in"},
		"an unknown verb":            {rule(func(r *access.Rule) { r.Verbs = []string{"*"} }), `verbs: "*" is unknown: use get, list`},
		"groups alone":               {rule(func(r *access.Rule) { r.Groups = []string{"apps"} }), "resources: is empty"},
		"resources alone":            {rule(func(r *access.Rule) { r.Resources = []string{"pods"} }), "groups: is empty"},
		"no group":                   {rule(func(r *access.Rule) { r.Groups, r.Resources = []string{"a*"}, []string{"pods"} }), `groups: "a*"`},
		"subresources of one":        {rule(func(r *access.Rule) { r.Groups, r.Resources = []string{""}, []string{"pods/*"} }), `resources: "pods/*"`},
		"a kind":                     {rule(func(r *access.Rule) { r.Groups, r.Resources = []string{""}, []string{"Pod"} }), `resources: "Pod"`},
		"a pattern of namespaces":    {rule(func(r *access.Rule) { r.Namespaces = []string{"web-*"} }), `namespaces: "web-*"`},
		"a pattern of names":         {rule(func(r *access.Rule) { r.Names = []string{"*"} }), `names: "*"`},
		"too many names":             {rule(func(r *access.Rule) { r.Names = many }), "names: 65 entries are more than 64"},
		"anybody":                    {access.Config{Impersonate: []string{"*"}}, `impersonate: "*"`},
		"nobody":                     {access.Config{Impersonate: []string{""}}, `impersonate: ""`},
		"too many to be":             {access.Config{Impersonate: many}, "impersonate: 65 entries are more than 64"},
		"all problems at once (one)": {access.Config{Impersonate: []string{""}, Rules: []access.Rule{{}}}, `impersonate: ""`},
		"all problems at once (two)": {access.Config{Impersonate: []string{""}, Rules: []access.Rule{{}}}, "rules[0]: name"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := access.New(access.Spoke, tt.config); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v, want one with %q", err, tt.want)
			}
		})
	}
	fits := access.Config{Impersonate: many[:access.MaxItems], Rules: []access.Rule{{Name: "a", Names: many[:access.MaxItems]}}}
	if err := fits.Validate(); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if _, err := access.New(0, access.Config{}); err == nil {
		t.Error("a policy of no side is accepted")
	}
}
