//go:build linux

package install

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// TestChartsTakeTheImagesThatWereMade renders both charts with the values that `make
// images` writes beside the images: ours are named by their digests, and no tag that
// someone could move is left.
func TestChartsTakeTheImagesThatWereMade(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	makefile, err := os.ReadFile(filepath.Join(harnesstest.Tools(t).Checkout(), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	made := regexp.MustCompile(`printf '([^']+)'((?: "\$\$\{digest\[\w+\]\}")+) >'\$\(IMAGES\)'/values-(\w+)\.yaml`)
	program := regexp.MustCompile(`digest\[(\w+)\]`)
	files := map[string]string{} // by chart
	digests := map[string]string{
		"principal": "sha256:" + strings.Repeat("1", 64), "agent": "sha256:" + strings.Repeat("2", 64), "agentctl": "sha256:" + strings.Repeat("3", 64),
	}
	for _, m := range made.FindAllStringSubmatch(string(makefile), -1) {
		var arguments []any
		for _, name := range program.FindAllStringSubmatch(m[2], -1) {
			arguments = append(arguments, digests[name[1]])
		}
		files["argomesh-"+m[3]] = fmt.Sprintf(strings.ReplaceAll(m[1], `\n`, "\n"), arguments...)
	}
	for chart, c := range map[string]struct {
		values string
		images map[string]string // by container
	}{
		charts.Principal: {"", map[string]string{"principal": "principal", "envoy-bootstrap": "agentctl"}},
		charts.Agent:     {charts.AgentValues, map[string]string{"agent": "agent"}},
	} {
		values, written := files[chart]
		if !written {
			t.Fatalf("make images writes no values for %s: %v", chart, files)
		}
		want := map[string]string{}
		for container, image := range c.images {
			want[container] = "argomesh/" + image + "@" + digests[image]
		}
		got := map[string]string{}
		spec := charts.FindKind(t, charts.Render(t, chart, c.values+values), "Deployment").Object
		for _, list := range []string{"initContainers", "containers"} {
			containers, _, _ := unstructured.NestedSlice(spec, "spec", "template", "spec", list)
			for _, o := range containers {
				container, _ := o.(map[string]any)
				if image, _ := container["image"].(string); strings.HasPrefix(image, "argomesh/") {
					got[fmt.Sprint(container["name"])] = image
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s has our images %v, want %v", chart, got, want)
		}
	}
}
