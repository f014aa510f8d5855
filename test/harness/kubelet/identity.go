//go:build linux

package kubelet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"text/template"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/test/kit"
)

// socketOfAPI is what SPIRE's agent calls the socket of its Workload API.
const socketOfAPI = "spire-agent.sock"

// registration is what spire-controller-manager reads of a ClusterSPIFFEID.
type registration struct {
	Template  string                `json:"spiffeIDTemplate"`
	DNSNames  []string              `json:"dnsNameTemplates"`
	Federates []string              `json:"federatesWith"`
	Pods      *metav1.LabelSelector `json:"podSelector"`
	Namespace *metav1.LabelSelector `json:"namespaceSelector"`
	Fallback  bool                  `json:"fallback"`
}

// trusted is what it reads of a ClusterFederatedTrustDomain.
type trusted struct {
	TrustDomain string `json:"trustDomain"`
	Bundle      string `json:"trustDomainBundle"`
}

// registered is all that a cluster has registered with its SPIRE.
type registered struct {
	ids       []registration
	trusted   map[string]string // bundles by trust domain
	namespace *corev1.Namespace
}

// registered reads it. What the cluster has no definition of is not there.
func (n *Node) registered(ctx context.Context) (r registered, err error) {
	if n.cfg.TrustDomain.IsZero() {
		return r, nil
	}
	r.trusted = map[string]string{}
	if r.namespace, err = n.client.CoreV1().Namespaces().Get(ctx, n.cfg.Namespace, metav1.GetOptions{}); err != nil {
		return r, err
	}
	if r.ids, err = specs[registration](ctx, n, spire.ClusterSPIFFEIDKind); err != nil {
		return r, err
	}
	domains, err := specs[trusted](ctx, n, spire.ClusterFederatedTrustDomainKind)
	for _, d := range domains {
		r.trusted[d.TrustDomain] = d.Bundle
	}
	return r, err
}

// specs are the specs of the objects of a kind of spire-controller-manager.
func specs[T any](ctx context.Context, n *Node, kind string) (out []T, err error) {
	list, err := n.cfg.ControlPlane.Resource(spire.Resource(kind), "").List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		var one struct {
			Spec T `json:"spec"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &one); err != nil {
			return nil, err
		}
		out = append(out, one.Spec)
	}
	return out, nil
}

// serveWorkloadAPI has a folder have the socket of a Workload API, which gives nothing until the pod is identified.
func (p *pod) serveWorkloadAPI(ctx context.Context, dir string) error {
	if p.node.cfg.TrustDomain.IsZero() {
		return fmt.Errorf("driver name %s not found in the list of registered CSI drivers", driver)
	}
	api, err := devworkload.New(devworkload.Config{TrustDomain: p.node.cfg.TrustDomain, CADir: p.node.cfg.CADir})
	if err != nil {
		return err
	}
	l, err := devworkload.Listen(ctx, filepath.Join(dir, socketOfAPI), 0o600)
	if err != nil {
		return err
	}
	p.api = api
	p.stops = append(p.stops, kit.Start(context.WithoutCancel(ctx), func(ctx context.Context) error { return api.Run(ctx, l) }))
	return nil
}

// identify has the pod's Workload API give what its cluster has registered for it.
func (p *pod) identify(r registered) error {
	if p.api == nil {
		return nil
	}
	var own, fallback []registration
	for _, id := range r.ids {
		matches, err := id.matches(p.is, r.namespace)
		switch {
		case err != nil:
			return err
		case matches && id.Fallback:
			fallback = append(fallback, id)
		case matches:
			own = append(own, id)
		}
	}
	if len(own) == 0 {
		own = fallback
	}
	var entries []devworkload.Entry
	bundles := map[string]string{}
	for _, id := range own {
		entry, err := id.entry(p)
		if err != nil {
			return err
		}
		entries = append(entries, entry)
		for _, td := range id.Federates {
			if r.trusted[td] != "" {
				bundles[td] = r.trusted[td]
			}
		}
	}
	told, err := json.Marshal(struct {
		Entries []devworkload.Entry
		Bundles map[string]string
	}{entries, bundles})
	if err != nil || string(told) == p.told {
		return err
	}
	var federated []*spiffebundle.Bundle
	for name, text := range bundles {
		td, err := spiffeid.TrustDomainFromString(name)
		if err != nil {
			return err
		}
		bundle, err := spire.ParseBundle(td, []byte(text))
		if err != nil {
			return err
		}
		federated = append(federated, bundle)
	}
	if err := p.api.SetFederated(federated...); err != nil {
		return err
	}
	p.told = string(told)
	return p.api.SetEntries(entries)
}

// matches reports whether a registration is of a pod. A selector that is not there is of all.
func (id *registration) matches(is *corev1.Pod, in *corev1.Namespace) (bool, error) {
	for _, one := range []struct {
		selector *metav1.LabelSelector
		labels   map[string]string
	}{{id.Pods, is.Labels}, {id.Namespace, in.Labels}} {
		if one.selector == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(one.selector)
		if err != nil || !selector.Matches(labels.Set(one.labels)) {
			return false, err
		}
	}
	return true, nil
}

// entry is what a registration gives to a pod.
func (id *registration) entry(p *pod) (devworkload.Entry, error) {
	text, err := p.render(id.Template)
	if err != nil {
		return devworkload.Entry{}, err
	}
	is, err := spiffeid.FromString(text)
	if err != nil {
		return devworkload.Entry{}, err
	}
	entry := devworkload.Entry{ID: is}
	for _, t := range id.DNSNames {
		name, err := p.render(t)
		if err != nil {
			return entry, err
		}
		entry.DNSNames = append(entry.DNSNames, name)
	}
	return entry, nil
}

// render is what a template of spire-controller-manager says of the pod.
func (p *pod) render(text string) (string, error) {
	t, err := template.New("id").Parse(text)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{
		"TrustDomain": p.node.cfg.TrustDomain.Name(), "PodMeta": &p.is.ObjectMeta, "PodSpec": &p.is.Spec,
	})
	return out.String(), err
}
