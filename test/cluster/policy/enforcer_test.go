package policy_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/argomesh/argomesh/test/cluster/policy"
	"github.com/argomesh/argomesh/test/kit"
)

// applied are the rulesets that an Enforcer has applied.
type applied struct {
	mu  sync.Mutex // guards all
	all []string
}

func (a *applied) apply(_ context.Context, ruleset string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, ruleset)
	return nil
}

func (a *applied) list() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.all)
}

func (a *applied) waitFor(t *testing.T, what string, holds func(ruleset string) bool) {
	t.Helper()
	kit.Eventually(t, what, func() bool {
		all := a.list()
		return len(all) > 0 && holds(all[len(all)-1])
	})
}

// watched waits until an Enforcer watches, from when on it hears of what is made.
func watched(t *testing.T, client *fake.Clientset) {
	t.Helper()
	kit.Eventually(t, "three watches", func() bool {
		kinds := map[string]bool{}
		for _, a := range client.Actions() {
			if a.GetVerb() == "watch" {
				kinds[a.GetResource().Resource] = true
			}
		}
		return len(kinds) == 3
	})
}

// shop is a namespace with a pod that a policy isolates.
func shop() (*corev1.Namespace, *corev1.Pod, *networkingv1.NetworkPolicy) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{NodeName: node},
			Status:     corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}},
		},
		&networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"},
			Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		}
}

// Whatever object changes, the rules follow, and only what is new is applied.
func TestEnforcerFollows(t *testing.T) {
	ctx := kit.Context(t)
	client, rules := fake.NewClientset(), &applied{}
	enforcer, err := policy.New(policy.Config{Client: client, Node: node, Apply: rules.apply})
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, enforcer.Run)
	watched(t, client)
	rules.waitFor(t, "a first ruleset", func(string) bool { return true })

	namespace, pod, deny := shop()
	isolated := func(ruleset string) bool { return strings.Contains(ruleset, "10.0.0.1 : jump ingress/shop/web") }
	free := func(ruleset string) bool { return !isolated(ruleset) }
	create(t, client, namespace, pod, deny)
	rules.waitFor(t, "isolation", isolated)

	pod.Labels = nil
	if pod, err = client.CoreV1().Pods("shop").Update(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	rules.waitFor(t, "a pod of other labels", free)

	deny.Spec.PodSelector = metav1.LabelSelector{}
	if _, err := client.NetworkingV1().NetworkPolicies("shop").Update(ctx, deny, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	rules.waitFor(t, "a policy for all pods", isolated)

	// Of an annotation nothing depends. The next change shows that it was seen.
	pod.Annotations = map[string]string{"a": "b"}
	if _, err := client.CoreV1().Pods("shop").Update(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.NetworkingV1().NetworkPolicies("shop").Delete(ctx, "deny", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	rules.waitFor(t, "no policy", free)
	all := rules.list()
	if distinct := slices.Compact(slices.Clone(all)); len(distinct) != len(all) {
		t.Errorf("the same rules were applied again:\n%s", strings.Join(all, "\n"))
	}
}

func create(t *testing.T, client kubernetes.Interface, objects ...runtime.Object) {
	t.Helper()
	ctx := kit.Context(t)
	for _, object := range objects {
		var err error
		switch o := object.(type) {
		case *corev1.Namespace:
			_, err = client.CoreV1().Namespaces().Create(ctx, o, metav1.CreateOptions{})
		case *corev1.Pod:
			_, err = client.CoreV1().Pods(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		case *networkingv1.NetworkPolicy:
			_, err = client.NetworkingV1().NetworkPolicies(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestEnforcerFails(t *testing.T) {
	namespace, pod, deny := shop()
	sctp := deny.DeepCopy()
	sctp.Name, sctp.Spec.Ingress = "sctp", []networkingv1.NetworkPolicyIngressRule{
		{Ports: []networkingv1.NetworkPolicyPort{{Protocol: new(corev1.ProtocolSCTP)}}},
	}
	for name, c := range map[string]struct {
		objects []runtime.Object
		apply   func(context.Context, string) error
		want    string
	}{
		"a policy that is not supported": {
			[]runtime.Object{namespace, pod, deny, sctp}, (&applied{}).apply,
			"NetworkPolicy shop/sctp: spec.ingress[0].ports[0].protocol",
		},
		"rules that are not taken": {
			[]runtime.Object{namespace, pod, deny},
			func(context.Context, string) error { return errors.New("nft: no such table") },
			"no such table",
		},
	} {
		t.Run(name, func(t *testing.T) {
			enforcer, err := policy.New(policy.Config{Client: fake.NewClientset(c.objects...), Node: node, Apply: c.apply})
			if err != nil {
				t.Fatal(err)
			}
			if err := enforcer.Run(kit.Context(t)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Run() = %v, want %q", err, c.want)
			}
		})
	}
}

// An Enforcer whose API server does not answer applies nothing, and ends when it is asked to.
func TestEnforcerEndsBeforeItKnows(t *testing.T) {
	client, rules := fake.NewClientset(), &applied{}
	listed := make(chan struct{}, 100)
	client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		listed <- struct{}{}
		return true, nil, errors.New("the API server is away")
	})
	enforcer, err := policy.New(policy.Config{Client: client, Node: node, Apply: rules.apply})
	if err != nil {
		t.Fatal(err)
	}
	stop := kit.Background(t, enforcer.Run)
	select {
	case <-listed:
	case <-kit.Context(t).Done():
		t.Fatal("it lists nothing")
	}
	stop()
	if all := rules.list(); len(all) > 0 {
		t.Errorf("it applied\n%s", strings.Join(all, "\n"))
	}
}

func TestNewEnforcerRefuses(t *testing.T) {
	for name, cfg := range map[string]policy.Config{
		"no client": {Node: node},
		"no node":   {Client: fake.NewClientset()},
	} {
		if _, err := policy.New(cfg); err == nil {
			t.Errorf("%s: New() takes it", name)
		}
	}
}
