//go:build linux && matrix

package mesh

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// Istio's own validation and analysis read everything that is rendered for it.
func TestIstioctlTakesWhatIsRendered(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "istioctl")
	for _, file := range meshGolden(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			out, err := istioctl(t, "validate", "-f", file)
			if err != nil || bytes.Contains(bytes.ToLower(out), []byte("warning")) {
				t.Errorf("istioctl validate: %v\n%s", err, out)
			}
			// Offline there is no gateway workload and no Service, which it may miss.
			out, err = istioctl(t, "analyze", "--use-kube=false", file)
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "[IST") && !strings.Contains(line, "[IST0101]") && !strings.Contains(line, "[IST0102]") {
					t.Errorf("istioctl analyze: %v: %s", err, line)
				}
			}
		})
	}
}

// Nor does Istio's analysis miss anything of a principal that the chart installs: the
// Services, ports, pods and gateways of which the objects speak are there.
func TestIstioctlFindsWhatTheChartInstalls(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "istioctl", "helm")
	for name, c := range charts.Combinations {
		if !strings.Contains(c.Values, "exposure:") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			chart := charts.Render(t, c.Chart, c.Values)
			pods := env.Convert[appsv1.Deployment](t, charts.FindKind(t, chart, "Deployment")).Spec.Template
			file := filepath.Join(t.TempDir(), "all.yaml")
			all := []any{
				istioNamespace(harness.ArgoCDNamespace), istioNamespace("istio-ingress"),
				istioPod(harness.ArgoCDNamespace, "principal-1", pods.Labels), istioPod("istio-ingress", "gateway-1", map[string]string{"istio": "ingress"}),
			}
			for _, o := range chart {
				if o.GetKind() == "Service" || o.GetKind() == "Deployment" {
					all = append(all, o.Object)
				}
			}
			for _, o := range charts.MeshOfChart(t, chart) {
				all = append(all, o.Object)
			}
			var documents bytes.Buffer
			for _, o := range all {
				raw, err := yaml.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				documents.WriteString("---\n")
				documents.Write(raw)
			}
			if err := os.WriteFile(file, documents.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := istioctl(t, "analyze", "--use-kube=false", file); err != nil || bytes.Contains(out, []byte("[IST")) {
				t.Errorf("istioctl analyze: %v\n%s", err, out)
			}
		})
	}
}

func istioNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"istio-injection": "enabled"}},
	}
}

// pod is one with a proxy of Istio.
func istioPod(namespace, name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "istio-proxy", Image: "istio/proxyv2:1.31.0"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// The validation above can fail.
func TestIstioctlRefusesNonsense(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "istioctl")
	raw, err := os.ReadFile(filepath.Join(meshGoldenDir, "gateway.out.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	good := string(raw)
	for title, change := range map[string][2]string{
		"no port":          {"number: 443", "number: 0"},
		"an unknown field": {"mtls:", "mutual:"},
		"no mode of TLS":   {"mode: STRICT", "mode: SOMETIMES"},
	} {
		t.Run(title, func(t *testing.T) {
			if !strings.Contains(good, change[0]) {
				t.Fatalf("nothing that is rendered has %q", change[0])
			}
			file := filepath.Join(t.TempDir(), "objects.yaml")
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(good, change[0], change[1])), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := istioctl(t, "validate", "-f", file); err == nil {
				t.Errorf("Istio takes it:\n%s", out)
			}
		})
	}
}

// istioctl runs a command without any cluster.
func istioctl(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	path, err := harnesstest.Tools(t).Path("istioctl")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "KUBECONFIG="+filepath.Join(dir, "none"))
	return cmd.CombinedOutput()
}
