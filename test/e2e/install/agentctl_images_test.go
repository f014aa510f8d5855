//go:build linux

package install

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/harness"
)

// movingRegistry has every image, of a digest that can be moved, and none of a digest that it had before. It may be
// away: then it lets no one in.
type movingRegistry struct {
	server *httptest.Server
	digit  atomic.Pointer[string] // what the digest is made of
	away   atomic.Bool
}

func newMovingRegistry(t *testing.T) *movingRegistry {
	t.Helper()
	r := &movingRegistry{}
	r.move("1")
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.away.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if asked := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]; strings.HasPrefix(asked, "sha256:") && asked != r.digest() {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
		w.Header().Set("Docker-Content-Digest", r.digest())
		w.Header().Set("Content-Length", "2")
	}))
	t.Cleanup(r.server.Close)
	return r
}

func (r *movingRegistry) move(digit string) { r.digit.Store(&digit) }

func (r *movingRegistry) digest() string { return digestOf(*r.digit.Load()) }

func digestOf(digit string) string { return "sha256:" + strings.Repeat(digit, 64) }

// imagesOf are those of the pods of a Deployment, by container.
func imagesOf(t *testing.T, c *harness.ControlPlane, deployment string) map[string]string {
	t.Helper()
	d, err := c.Resource(deployments, harness.ArgoCDNamespace).Get(t.Context(), deployment, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, list := range []string{"initContainers", "containers"} {
		containers, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", list)
		for _, o := range containers {
			container, _ := o.(map[string]any)
			out[fmt.Sprint(container["name"])] = fmt.Sprint(container["image"])
		}
	}
	return out
}

// An install names images by the digests that their registries say, and keeps to them.
func namesImagesByDigest(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	r := newMovingRegistry(t)
	folder := strings.TrimPrefix(r.server.URL, "http://") + "/argomesh"
	install := []string{
		"hub", "install", "--registry", folder, "--timeout", "2m",
		"--set", "envoy.image.repository=" + folder + "/envoy,envoy.image.tag=v1",
	}
	has := func(when, principalTag, digit string) {
		t.Helper()
		at := "@" + digestOf(digit)
		want := map[string]string{
			"principal":       folder + "/principal:" + principalTag + at,
			"envoy-bootstrap": folder + "/agentctl:0.1.0" + at, "envoy": folder + "/envoy:v1" + at,
		}
		if diff := cmp.Diff(want, imagesOf(t, c, charts.Principal)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	r.away.Store(true)
	out := must(t, c.Kubeconfig, install...)
	want := "whether there is an image " + folder + "/principal:0.1.0 could not be asked from here, so that it is named by its tag: "
	if !strings.Contains(out, want) || !strings.Contains(out, "; run this again from where its registry is reached") {
		t.Errorf("with a registry that is away it does not say %q, and what helps:\n%s", want, out)
	}
	if got := imagesOf(t, c, charts.Principal)["principal"]; got != folder+"/principal:0.1.0" {
		t.Errorf("with a registry that is away the image is %s", got)
	}
	r.away.Store(false)
	must(t, c.Kubeconfig, install...)
	has("once the registry is back", "0.1.0", "1")
	must(t, c.Kubeconfig, "hub", "uninstall", "--yes")

	// What was ended in the middle is mended with digests, too.
	if !killedOnceIn(t, 1, []*harness.ControlPlane{c}, append(slices.Clone(install), "--check-images=false")...) {
		t.Error("it was done before write 1")
	}
	if out := must(t, c.Kubeconfig, install...); !strings.Contains(out, "argomesh-principal 0.1.0 in namespace argocd: mend, since") {
		t.Errorf("it does not mend:\n%s", out)
	}
	has("mended", "0.1.0", "1")

	r.move("2")
	before := revisions(t, c)
	must(t, c.Kubeconfig, install...)
	if diff := cmp.Diff(before, revisions(t, c)); diff != "" {
		t.Errorf("a tag that was moved changes something (-before +after):\n%s", diff)
	}
	_, err := agentctl(t, c.Kubeconfig, "hub", "install", "--set", "podLabels.a=b")
	if want := folder + "/principal:0.1.0@" + digestOf("1"); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("with a digest that the registry has no more: %v", err)
	}
	must(t, c.Kubeconfig, "hub", "install", "--set", "imageDigests=null")
	has("asked again", "0.1.0", "2")

	must(t, c.Kubeconfig, "hub", "install", "--set", "image.tag=other")
	has("of another tag", "other", "2")
	names := []string{folder + "/agentctl:0.1.0", folder + "/envoy:v1", folder + "/principal:other"}
	if got := digestNames(t, c); !slices.Equal(got, names) {
		t.Errorf("the values have digests of %q, want %q", got, names)
	}

	r.server.Close()
	out = must(t, c.Kubeconfig, "hub", "install", "--set", "image.tag=third")
	if want := "whether there is an image " + folder + "/principal:third could not be asked from here"; !strings.Contains(out, want) {
		t.Errorf("with a registry that is away it does not say %q:\n%s", want, out)
	}
	if got := imagesOf(t, c, charts.Principal); got["principal"] != folder+"/principal:third" || got["envoy"] != folder+"/envoy:v1@"+digestOf("2") {
		t.Errorf("with a registry that is away the images are %v", got)
	}
	must(t, c.Kubeconfig, "hub", "uninstall", "--yes")
}

// digestNames are the images of which the values of the principal's release have digests, sorted.
func digestNames(t *testing.T, c *harness.ControlPlane) (names []string) {
	t.Helper()
	out, err := charts.Helm(t, "get", "values", charts.Principal, "--namespace", harness.ArgoCDNamespace, "--kubeconfig", c.Kubeconfig, "--output", "json")
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		ImageDigests map[string]string `json:"imageDigests"`
	}
	if err := json.Unmarshal([]byte(out), &values); err != nil {
		t.Fatal(err)
	}
	for name := range values.ImageDigests {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
