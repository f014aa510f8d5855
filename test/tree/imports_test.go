package tree

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// anything is the row of packages that compose all others.
const anything = "everything"

// mayImport is the import table: for each package of ours, which others of ours it
// may import. A pattern ends in /... and then means the folder and all below it; the
// longest pattern that matches a package is its row. Imports point down and never
// sideways:
//
//	cmd → stream/server stream/client stream/tunnel  backends/*  proxies/*  mesh/*  fleet  identity/workload
//	    → stream/link  stream/call  backends  mesh  → stream → identity (libraries only)
//
// Imports of tests are free: they may set up what a package is used with.
var mayImport = map[string][]string{
	"api/v1alpha1": nil,

	"charts":           nil,
	"cmd/...":          {anything},
	"cmd/internal/...": {"cmd/internal/..."},
	// A block of settings in the terms of package mesh, for two programs.
	"cmd/internal/meshconfig": {"cmd/internal/...", "identity", "mesh", "mesh/istio", "mesh/objects", "mesh/spire", "stream/streampb"},

	// The configuration of an agent, and of the principal, for themselves and for agentctl.
	"cmd/internal/agentconfig": {
		"cmd/internal/...", "backends/bounds", "backends/budget", "backends/mapping", "backends/policy", "fleet/clusterinfo", "identity", "proxies/access", "stream",
	},
	"cmd/internal/principalconfig": {
		"cmd/internal/...", "api/v1alpha1", "backends/budget", "backends/copies", "backends/mapping", "backends/ownership", "fleet", "fleet/clusterinfo", "fleet/controller", "fleet/hub",
		"identity", "mesh", "mesh/spire/serverapi", "mesh/xds", "proxies/token", "stream",
	},

	// Below whatever watches the Kubernetes API.
	"backends/kube/reflector": nil,

	"identity":                         nil,
	"internal/notify":                  nil,
	"internal/diff":                    nil,
	"internal/sealed":                  nil,
	"internal/pause":                   nil,
	"identity/workload":                {"internal/notify", "identity", "stream/protolimit"},
	"identity/header":                  {"identity"},
	"identity/devworkload":             {"internal/notify", "identity"},
	"identity/inspect":                 {"identity"},
	"fleet":                            {"api/v1alpha1", "backends/mapping", "identity", "internal/notify", "stream"},
	"fleet/hub":                        {"api/v1alpha1"},
	"fleet/strangers":                  {"internal/notify"},
	"fleet/controller":                 {"api/v1alpha1", "backends/kube/collection", "backends/kube/reflector", "fleet", "identity", "internal/pause"},
	"fleet/meshpolicy":                 {"api/v1alpha1", "backends/kube/collection", "backends/kube/reflector", "fleet", "identity", "internal/diff", "internal/notify", "internal/pause", "mesh/objects"}, // what is rendered is given to it
	"fleet/clusterinfo":                {"internal/notify", "identity", "stream"},                                                                                                                          // both ends of what an agent tells of its Argo CD
	"fleet/accessrequests":             {"api/v1alpha1", "backends/kube/collection", "backends/kube/reflector", "identity", "internal/notify", "internal/sealed", "proxies/token"},
	"fleet/agentwatch":                 {"api/v1alpha1", "backends/bounds", "backends/budget", "backends/kube/collection", "backends/kube/reflector", "backends/presence", "fleet", "fleet/continuity", "identity", "stream"},
	"fleet/children":                   {"backends", "backends/mapping", "fleet", "fleet/controller", "identity", "stream"},
	"fleet/continuity":                 {"api/v1alpha1", "backends/mirror", "fleet", "identity", "stream"},
	"fleet/credentials":                {"internal/notify", "api/v1alpha1", "fleet/controller", "identity", "identity/workload", "proxies/token"},
	"fleet/division":                   {"backends", "backends/mapping", "backends/ownership", "backends/shares", "fleet", "identity", "stream"},
	"fleet/events":                     {"backends", "backends/appevents", "identity", "stream"},
	"fleet/hubclusters":                {"backends/kube/collection", "backends/kube/reflector", "internal/notify"},
	"fleet/links":                      {"internal/notify", "api/v1alpha1", "backends", "backends/admission", "backends/appevents", "backends/budget", "backends/departures", "backends/keyset", "backends/kube", "backends/linkmetrics", "backends/mirror", "backends/object", "backends/ownership", "fleet", "fleet/agentwatch", "fleet/continuity", "fleet/controller", "fleet/division", "fleet/events", "fleet/hub", "fleet/sessions", "identity", "stream", "stream/quota", "stream/server"},
	"fleet/envoy":                      {"fleet", "identity", "mesh", "mesh/xds", "proxies/token", "stream/streampb"},
	"fleet/live":                       {"api/v1alpha1", "backends", "backends/kube", "backends/mapping", "backends/ownership", "fleet", "fleet/division", "fleet/hub", "fleet/links", "fleet/sessions", "identity", "proxies/access", "proxies/redis", "proxies/redis/appkey", "proxies/redis/warmplan", "proxies/resource", "proxies/token", "stream"},
	"fleet/sessions":                   {"internal/notify", "api/v1alpha1", "backends/budget", "backends/cascades", "backends/mirror", "fleet", "fleet/agentwatch", "fleet/clusterinfo", "fleet/controller", "identity", "stream", "stream/link", "stream/server"},
	"stream":                           {"identity", "stream/streampb"}, // the wire mapping is stream's
	"stream/streampb":                  nil,
	"stream/link":                      {"stream"},
	"stream/zstd":                      {"stream"}, // the limit of a frame
	"stream/jsonlimit":                 nil,
	"stream/protolimit":                nil,
	"stream/quota":                     {"identity"},
	"stream/wire":                      {"identity", "stream", "stream/quota"},                // what comes, before it is anything
	"stream/call":                      {"identity", "stream", "stream/quota", "stream/wire"}, // what the services have in common
	"stream/probe":                     {"identity", "identity/workload", "stream", "stream/call", "stream/streampb"},
	"stream/server":                    {"internal/notify", "identity", "stream", "stream/call", "stream/quota", "stream/streampb", "stream/wire", "stream/zstd"},
	"stream/client":                    {"identity", "stream", "stream/call", "stream/quota", "stream/streampb", "stream/wire", "stream/zstd"},
	"stream/tunnel":                    {"identity", "stream", "stream/call", "stream/streampb"},
	"stream/tunnel/dialer":             {"identity", "stream", "stream/call", "stream/quota", "stream/streampb", "stream/tunnel"},
	"stream/tunnel/acceptor":           {"identity", "stream", "stream/call", "stream/streampb", "stream/tunnel"},
	"backends":                         {"stream"},
	"backends/backendtest":             {"backends", "stream"},
	"backends/appevents":               {"stream"},
	"backends/budget":                  {"identity"},
	"backends/glob":                    nil,
	"backends/object":                  {"backends", "stream", "stream/jsonlimit"},
	"backends/cascades":                {"identity", "stream/link"},
	"backends/ownership":               {"backends/admission", "backends/appproject", "backends/appspec", "backends/budget", "backends/copies", "backends/glob", "backends/object", "backends/operations", "backends/policy", "backends/record", "backends/schema", "backends/statuses", "stream", "stream/link"},
	"backends/object/objecttest":       {"backends/object", "stream"},
	"backends/ownership/ownershiptest": {"backends/object", "backends/ownership", "identity", "stream", "backends/mapping", "backends/operations", "backends/copies"},
	"backends/schema":                  nil,
	"backends/kube/collection":         {"backends/kube/reflector"},
	"backends/kube":                    {"internal/notify", "backends", "stream", "backends/kube/reflector", "backends/schema"},
	"backends/memory":                  {"backends", "stream", "backends/schema"},
	"backends/keyset":                  {"internal/notify", "backends", "stream"},
	"backends/adopted":                 {"internal/notify", "backends", "backends/object", "stream", "backends/record"},
	"backends/departures":              {"backends", "backends/adopted", "backends/object", "backends/ownership", "identity", "stream", "backends/record", "backends/mapping", "backends/copies"},
	"backends/shares":                  {"backends", "identity", "stream", "backends/mapping"},
	"backends/stale":                   {"backends", "backends/budget", "backends/copies", "backends/keyset", "backends/object", "backends/ownership", "identity", "stream"},
	"backends/untaken":                 {"backends", "backends/keyset", "backends/object", "stream", "backends/record", "backends/mapping"},
	"backends/projects":                {"backends", "backends/keyset", "backends/object", "stream", "backends/record"},
	"backends/record":                  {"backends/object", "identity", "stream"},
	"backends/mapping":                 {"backends", "backends/glob", "backends/object", "backends/record", "identity", "stream"},
	"backends/policy":                  {"backends", "backends/glob", "backends/object", "identity", "stream"},
	"backends/appspec":                 {"backends/object", "stream"},
	"backends/admission":               {"backends/glob", "backends/mapping", "backends/object", "stream"},
	"backends/appproject":              {"backends/appspec", "backends/glob", "backends/mapping", "backends/object", "backends/record"},
	"backends/needs":                   {"backends/object"},
	"backends/statuses":                {"backends/budget", "backends/object", "backends/operations", "backends/record", "stream", "stream/link"},
	"backends/operations":              {"backends/object", "stream"},
	"backends/copies":                  {"backends/mapping", "backends/object", "backends/operations", "backends/record", "stream"},
	"backends/view":                    {"backends", "backends/object", "backends/schema", "stream"},
	"backends/bounds":                  {"backends/object", "backends/ownership", "stream"},
	"backends/worker":                  {"backends", "backends/adopted", "backends/bounds", "backends/object", "backends/operations", "backends/ownership", "backends/record", "backends/schema", "identity", "stream", "stream/quota"},
	"backends/jobs":                    {"backends/budget", "backends/object", "stream"},
	"backends/refusals":                {"backends/object", "stream", "stream/link"},
	"backends/session":                 {"stream"},
	"backends/presence":                nil,
	"backends/witness":                 {"backends", "backends/object", "stream"},
	"backends/linkmetrics":             {"backends/budget", "stream"},
	"backends/eventrelay":              {"backends", "backends/appevents", "backends/budget", "backends/linkmetrics", "stream"},
	"backends/mirror":                  {"internal/notify", "backends", "backends/admission", "backends/appevents", "backends/bounds", "backends/budget", "backends/cascades", "backends/eventrelay", "backends/jobs", "backends/keyset", "backends/linkmetrics", "backends/needs", "backends/object", "backends/operations", "backends/ownership", "backends/presence", "backends/refusals", "backends/schema", "backends/session", "backends/statuses", "backends/view", "backends/witness", "backends/worker", "stream", "stream/link", "stream/quota"}, // it runs one link
	"proxies/access":                   {"api/v1alpha1"},                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                   // spec.access is its rules on the hub
	"proxies/audit":                    {"identity"},
	"proxies/masking":                  {"stream/jsonlimit"},
	"proxies/resource/mediatype":       nil,
	"proxies/resource/pool":            nil,
	"proxies/resource/replies":         {"identity", "proxies/access", "proxies/resource/mediatype"},
	"proxies/resource/objects":         nil,
	"proxies/resource/exchange":        {"proxies/access"},
	"proxies/resource/secretread":      {"identity", "proxies/access", "proxies/masking", "proxies/resource/exchange", "proxies/resource/mediatype", "stream/jsonlimit"},
	"proxies/resource/concurrency":     {"identity"},
	"proxies/resource/callmetrics":     {"proxies/resource/pool", "proxies/resource/secretread"},
	"proxies/resource/spoke":           {"identity", "proxies/access", "proxies/masking", "proxies/resource/callmetrics", "proxies/resource/concurrency", "proxies/resource/exchange", "proxies/resource/mediatype", "proxies/resource/objects", "proxies/resource/pool", "proxies/resource/secretread"},
	"proxies/resource":                 {"identity", "proxies/access", "proxies/audit", "proxies/masking", "proxies/resource/callmetrics", "proxies/resource/concurrency", "proxies/resource/exchange", "proxies/resource/mediatype", "proxies/resource/pool", "proxies/resource/replies", "proxies/resource/secretread", "stream", "stream/jsonlimit"},
	"proxies/token":                    {"internal/notify", "identity"},
	"proxies/redis/appkey":             nil,
	"proxies/redis/resp":               nil,
	"proxies/redis/spoke":              {"proxies/redis/appkey", "proxies/redis/resp", "stream"},
	"proxies/redis/values":             {"proxies/redis/appkey", "proxies/redis/resp", "stream/jsonlimit"},
	"proxies/redis/warmplan":           {"identity", "proxies/redis/appkey"},
	"proxies/redis":                    {"internal/notify", "identity", "proxies/redis/appkey", "proxies/redis/resp", "proxies/redis/values", "proxies/redis/warmplan", "stream", "stream/quota"},
	"mesh":                             {"identity"},
	"mesh/objects":                     {"internal/diff"},
	"mesh/istio":                       {"identity", "mesh", "mesh/objects"},
	"mesh/spire":                       {"identity", "internal/diff", "mesh", "mesh/objects", "stream/jsonlimit"},
	"mesh/spire/serverapi":             {"identity", "internal/diff", "mesh/spire", "stream/protolimit"},
	"mesh/spire/spiretest":             {"identity", "mesh/spire", "test/kit/certkit"}, // for tests
	"mesh/xds":                         {"internal/notify", "identity", "mesh"},
	"test/...":                         {anything},
	"test/tools":                       {"test/tools/toolset"}, // compiles in a second on a fresh machine
	"test/tools/toolset":               nil,
	"test/tools/...":                   nil,
}

// planned are rows whose package is the work of an open issue. The first file of
// the package takes it off this list.
var planned = []string{}

// row returns the imports the table allows pkg, and whether it has a row.
func row(pkg string) (allowed []string, ok bool) {
	if allowed, ok = mayImport[pkg]; ok {
		return allowed, true
	}
	for dir := pkg; dir != "."; dir = path.Dir(dir) {
		if allowed, ok = mayImport[dir+"/..."]; ok {
			return allowed, true
		}
	}
	return nil, false
}

func TestImportTable(t *testing.T) {
	for _, p := range packages(t) {
		allowed, ok := row(p.rel())
		if !ok {
			t.Errorf("%s has no row in mayImport: give it one, and a sentence in ARCHITECTURE.md", p.rel())
			continue
		}
		for _, imported := range p.Imports {
			ours, ok := strings.CutPrefix(imported, module+"/")
			if ok && !permits(allowed, ours) {
				t.Errorf("%s imports %s, which the table does not allow (it may import %s): imports point down and never sideways; "+
					"move what is shared to a package below both, or declare a small interface where it is used",
					p.rel(), ours, orNothing(allowed))
			}
		}
	}
}

// A row without a package guards nothing: a rename would switch its rule off.
func TestImportTableIsOfThisTree(t *testing.T) {
	existing := byName(t)
	for name := range mayImport {
		if strings.HasSuffix(name, "/...") {
			continue
		}
		_, exists := existing[name]
		switch isPlanned := slices.Contains(planned, name); {
		case exists && isPlanned:
			t.Errorf("%s exists now: take it off the list planned", name)
		case !exists && !isPlanned:
			t.Errorf("the table has a row for %s, which does not exist: mend the table", name)
		}
	}
}

// A permission that is not used is one that no one has thought about.
func TestImportTableHasNoUnusedPermission(t *testing.T) {
	existing := byName(t)
	for name, allowed := range mayImport {
		p, exists := existing[name]
		if !exists {
			continue // a row for a folder, or of what is planned
		}
		for _, pattern := range allowed {
			if pattern == anything {
				continue
			}
			used := slices.ContainsFunc(p.Imports, func(imported string) bool {
				ours, ok := strings.CutPrefix(imported, module+"/")
				return ok && permits([]string{pattern}, ours)
			})
			if !used {
				t.Errorf("%s may import %s and does not: take it out of mayImport", name, pattern)
			}
		}
	}
}

// The table itself must not allow a way round: what a package may import must not,
// over any number of steps, be able to import the package.
func TestImportTableHasNoCycle(t *testing.T) {
	var visit func(pkg string, path []string)
	visit = func(pkg string, path []string) {
		if slices.Contains(path, pkg) {
			t.Errorf("the table allows a cycle: %s", strings.Join(append(path, pkg), " → "))
			return
		}
		for _, next := range mayImport[pkg] {
			if _, isRow := mayImport[next]; isRow && next != pkg {
				visit(next, append(slices.Clone(path), pkg))
			}
		}
	}
	for pkg := range mayImport {
		visit(pkg, nil)
	}
}

func TestRow(t *testing.T) {
	for pkg, want := range map[string]struct {
		allowed []string
		ok      bool
	}{
		"identity":           {nil, true},
		"identity/elsewhere": {nil, false},
		"cmd/agent":          {[]string{anything}, true},
		"cmd/internal/admin": {[]string{"cmd/internal/..."}, true},
		"test/tools/new":     {nil, true},
		"utilities":          {nil, false},
	} {
		if allowed, ok := row(pkg); ok != want.ok || !slices.Equal(allowed, want.allowed) {
			t.Errorf("row(%q) = %v, %v, want %v, %v", pkg, allowed, ok, want.allowed, want.ok)
		}
	}
}

// permits reports whether one of the patterns of a row names pkg.
func permits(allowed []string, pkg string) bool {
	return slices.ContainsFunc(allowed, func(pattern string) bool {
		if pattern == anything {
			return true
		}
		if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
			return strings.HasPrefix(pkg+"/", dir+"/")
		}
		return pkg == pattern
	})
}

func orNothing(allowed []string) string {
	if len(allowed) == 0 {
		return "nothing of ours"
	}
	return strings.Join(allowed, ", ")
}

// never lists packages that must not be part of a build of others, over any
// number of steps.
var never = []struct {
	of   []string // packages of ours
	deps []string // import paths; those below them count too
	why  string
}{
	{
		of:   []string{"identity"},
		deps: []string{"google.golang.org/grpc", "k8s.io/client-go", "github.com/rs/zerolog", "net/http", "os/exec"},
		why:  "identity does no I/O: it maps names, and everything else is built on it",
	},
	{
		of:   []string{"stream", "stream/link", "backends", "mesh"},
		deps: []string{"k8s.io/client-go", "github.com/rs/zerolog", "github.com/prometheus/client_golang"},
		why:  "domain types know no store, logger or metrics",
	},
	{
		of:   []string{"cmd/principal", "cmd/agent"},
		deps: []string{module + "/identity/devworkload"},
		why:  "devworkload issues identities to whoever asks, so it is never linked into the principal or the agent",
	},
	{
		of:   []string{"cmd/principal", "cmd/agent", "cmd/agentctl"},
		deps: []string{"github.com/argoproj/argo-cd", "github.com/argoproj/gitops-engine", "github.com/argoproj/argo-cd/gitops-engine"},
		why:  "argo-cd's types cost 80 MB of memory and carry only the fields they know: binaries read small views of unstructured objects",
	},
	{
		of:   []string{"cmd/principal", "cmd/agent", "cmd/agentctl"},
		deps: []string{"testing", "github.com/google/go-cmp", module + "/test", module + "/backends/backendtest", module + "/backends/object/objecttest", module + "/backends/ownership/ownershiptest", module + "/mesh/spire/spiretest"},
		why:  "what serves tests is not shipped",
	},
	{
		of:   []string{"cmd/principal", "cmd/agent"},
		deps: []string{"helm.sh/helm", module + "/charts"},
		why:  "Helm brings half of agentctl's packages: what runs for long does not install",
	},
	{
		of:   []string{"cmd/agent"},
		deps: []string{module + "/proxies/resource/replies", module + "/stream/server", module + "/stream/tunnel/dialer", module + "/fleet/links"},
		why:  "an agent is one side: the other is a principal's, also of what is tunnelled",
	},
	{
		of:   []string{"cmd/principal"},
		deps: []string{module + "/proxies/resource/spoke", module + "/proxies/redis/spoke", module + "/stream/client", module + "/stream/tunnel/acceptor"},
		why:  "a principal is one side: the other is an agent's",
	},
	{
		of:   []string{"test/tools"},
		deps: []string{"k8s.io", "google.golang.org", "github.com/rs"},
		why:  "the program that builds everything compiles on a fresh machine in a second",
	},
}

// excuses name, for a package that is not to be linked, the libraries that bring it along
// without need. Only while no one else imports the package does the excuse hold.
var excuses = map[string][]string{
	// The first keeps a logger for tests beside its own, the others ask whether a test runs.
	// Linked alone, package testing neither defines flags nor does anything.
	"testing": {
		"github.com/envoyproxy/go-control-plane/pkg/log", "helm.sh/helm/v4/internal/version", "helm.sh/helm/v4/pkg/chart/common",
	},
}

func excused(deps []pkg, path string) bool {
	for _, dep := range deps {
		if slices.Contains(dep.Imports, path) && !slices.Contains(excuses[path], dep.ImportPath) {
			return false
		}
	}
	return true
}

func TestNeverLinked(t *testing.T) {
	existing := byName(t)
	for _, rule := range never {
		for _, of := range rule.of {
			if _, exists := existing[of]; !exists {
				if !slices.Contains(planned, of) {
					t.Errorf("the rule about %s has lost its package: mend the rule", of)
				}
				continue
			}
			deps := goList(t, "-deps", "./"+of)
			for _, dep := range deps {
				for _, forbidden := range rule.deps {
					if (dep.ImportPath == forbidden || strings.HasPrefix(dep.ImportPath, forbidden+"/")) && !excused(deps, dep.ImportPath) {
						t.Errorf("%s is linked with %s: %s", of, dep.ImportPath, rule.why)
					}
				}
			}
		}
	}
}
