package policy_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/test/cluster/policy"
	"github.com/argomesh/argomesh/test/golden"
)

// node is where pods run whose file does not say otherwise.
const node = "here"

// documents calls do with each document of a YAML file.
func documents(t *testing.T, raw []byte, do func(document []byte)) {
	t.Helper()
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		do(document)
	}
}

// decode returns the objects of a YAML file, of which pods run on node unless they say otherwise.
func decode(t *testing.T, raw []byte) (objects policy.Objects) {
	t.Helper()
	documents(t, raw, func(document []byte) {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		switch o := object.(type) {
		case *networkingv1.NetworkPolicy:
			objects.Policies = append(objects.Policies, o)
		case *corev1.Pod:
			if o.Spec.NodeName == "" {
				o.Spec.NodeName = node
			}
			objects.Pods = append(objects.Pods, o)
		case *corev1.Namespace:
			objects.Namespaces = append(objects.Namespaces, o)
		default:
			t.Fatalf("what is a %T for?", o)
		}
	})
	return objects
}

func read(t *testing.T, title string) policy.Objects {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", title+".in.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, raw)
}

// The first line of each input says what its rules have to show.
func TestRulesetGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no inputs: %v", err)
	}
	for _, file := range files {
		title := strings.TrimSuffix(filepath.Base(file), ".in.yaml")
		t.Run(title, func(t *testing.T) {
			objects := read(t, title)
			ruleset, err := policy.Ruleset(node, objects)
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, filepath.Join("testdata", title+".out.nft"), ruleset)
			shuffle(objects.Policies)
			shuffle(objects.Pods)
			shuffle(objects.Namespaces)
			if again, err := policy.Ruleset(node, objects); err != nil || again != ruleset {
				t.Errorf("in another order the same objects give %v\n%s", err, again)
			}
		})
	}
}

func shuffle[T any](all []T) {
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
}

// What is not supported is named by policy and field, all at once.
func TestRulesetRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		want []string
	}{
		"SCTP": {
			"ingress: [{ports: [{port: 80}, {port: 7, protocol: SCTP}]}]",
			[]string{`spec.ingress[0].ports[1].protocol: Unsupported value: "SCTP"`},
		},
		"an unknown direction": {
			"policyTypes: [Ingress, Sideways]",
			[]string{`spec.policyTypes[1]: Unsupported value: "Sideways"`},
		},
		"a block that is none": {
			"{policyTypes: [Egress], egress: [{to: [{podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/33}}]}]}",
			[]string{`spec.egress[0].to[1].ipBlock.cidr: Invalid value: "10.0.0.0/33"`},
		},
		"an exception that is none": {
			"ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16, ten]}}]}]",
			[]string{`spec.ingress[0].from[0].ipBlock.except[1]: Invalid value: "ten"`},
		},
		"selectors with an unknown operator": {
			`
podSelector: {matchExpressions: [{key: a, operator: Near}]}
ingress:
  - from:
      - podSelector: {matchExpressions: [{key: a, operator: Like}]}
        namespaceSelector: {matchExpressions: [{key: a, operator: Unlike}]}
`,
			[]string{
				"spec.podSelector: Invalid value", "spec.ingress[0].from[0].podSelector: Invalid value",
				"spec.ingress[0].from[0].namespaceSelector: Invalid value",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			other := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "sound"}}
			refused := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "refused"}}
			if err := yaml.UnmarshalStrict([]byte(c.spec), &refused.Spec); err != nil {
				t.Fatal(err)
			}
			ruleset, err := policy.Ruleset(node, policy.Objects{Policies: []*networkingv1.NetworkPolicy{other, refused}})
			if err == nil {
				t.Fatalf("it is supported:\n%s", ruleset)
			}
			for _, want := range append(c.want, "NetworkPolicy shop/refused: ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q: %v", want, err)
				}
			}
			if strings.Contains(err.Error(), "sound") {
				t.Errorf("the error names a policy that is supported: %v", err)
			}
		})
	}
}

func TestRulesetRefusesAddresses(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Status:     corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "here"}}},
	}
	_, err := policy.Ruleset(node, policy.Objects{Pods: []*corev1.Pod{pod}})
	if err == nil || !strings.Contains(err.Error(), "pod shop/web: status.podIPs[1]") {
		t.Errorf("Ruleset() = %v", err)
	}
}

// A chain whose name would be longer than the kernel takes has the pod's UID.
func TestRulesetOfLongNames(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 253), UID: "4a3f2b1c-0000-4000-8000-000000000001",
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}},
	}
	deny := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "deny"}}
	ruleset, err := policy.Ruleset(node, policy.Objects{Pods: []*corev1.Pod{pod}, Policies: []*networkingv1.NetworkPolicy{deny}})
	if err != nil {
		t.Fatal(err)
	}
	if want := "chain ingress/" + pod.Namespace + "/" + string(pod.UID) + " {"; !strings.Contains(ruleset, want) {
		t.Errorf("the ruleset has no %q:\n%s", want, ruleset)
	}
}

// All that the charts ask for is supported, and each of their policies selects the pods of its Deployment.
func TestRulesetOfCharts(t *testing.T) {
	for chart, want := range map[string][]string{
		"argomesh-principal": {
			"chain ingress/argocd/argomesh-principal {", "chain egress/argocd/argomesh-principal {",
			"tcp dport 8443 return", "tcp dport 6443 return",
			// The resource proxy, whose port has a name, for Argo CD's pods alone.
			"ip saddr { 10.0.0.9 } tcp dport 9090 return",
			"ip daddr { 10.0.0.10 } udp dport 53 return",
		},
		"argomesh-agent": {
			"chain ingress/argocd/argomesh-agent {", "chain egress/argocd/argomesh-agent {", "tcp dport 6443 return",
			"ip daddr { 10.0.0.10 } udp dport 53 return",
		},
	} {
		t.Run(chart, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join("..", "..", "e2e", "install", "testdata", "charts", chart+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			objects := ofChart(t, raw)
			ruleset, err := policy.Ruleset(node, objects)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range objects.Policies {
				want = append(want, "# NetworkPolicy "+p.Namespace+"/"+p.Name)
			}
			for _, line := range want {
				if !strings.Contains(ruleset, line) {
					t.Errorf("the ruleset has no %q:\n%s", line, ruleset)
				}
			}
		})
	}
}

// ofChart returns the policies of a rendered chart, with a pod of its Deployment, one of Argo CD and one that
// answers DNS.
func ofChart(t *testing.T, raw []byte) policy.Objects {
	t.Helper()
	objects := decode(t, []byte(`
apiVersion: v1
kind: Namespace
metadata: {name: kube-system, labels: {kubernetes.io/metadata.name: kube-system}}
---
apiVersion: v1
kind: Pod
metadata: {name: argocd-server, namespace: argocd, labels: {app.kubernetes.io/name: argocd-server}}
status: {podIPs: [{ip: 10.0.0.9}]}
---
apiVersion: v1
kind: Pod
metadata: {name: coredns, namespace: kube-system}
status: {podIPs: [{ip: 10.0.0.10}]}
`))
	documents(t, raw, func(document []byte) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "NetworkPolicy":
			objects.Policies = append(objects.Policies, as(t, document, &networkingv1.NetworkPolicy{}))
		case "Deployment":
			d := as(t, document, &appsv1.Deployment{})
			pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
			pod.Namespace, pod.Name, pod.Spec.NodeName = d.Namespace, d.Name, node
			pod.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}}
			objects.Pods = append(objects.Pods, pod)
		}
	})
	return objects
}

func as[T runtime.Object](t *testing.T, document []byte, into T) T {
	t.Helper()
	if err := yaml.Unmarshal(document, into); err != nil {
		t.Fatal(err)
	}
	return into
}
