package policy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/argomesh/argomesh/internal/notify"
)

// Config holds what an Enforcer needs. Fields without a stated default are required.
type Config struct {
	// Client reads NetworkPolicies, Pods and Namespaces of all namespaces.
	Client kubernetes.Interface
	// Node is the name of the node whose pods are isolated.
	Node string
	// Apply puts a ruleset in the place of the one before. The default is [Apply].
	Apply func(ctx context.Context, ruleset string) error
	Log   zerolog.Logger
}

// Enforcer keeps the rules of one node as the objects of its cluster want them.
type Enforcer struct {
	cfg Config
}

// New checks cfg and starts nothing.
func New(cfg Config) (*Enforcer, error) {
	switch {
	case cfg.Client == nil:
		return nil, errors.New("policy: no client")
	case cfg.Node == "":
		return nil, errors.New("policy: no name of a node")
	case cfg.Apply == nil:
		cfg.Apply = Apply
	}
	return &Enforcer{cfg: cfg}, nil
}

// Apply has nft put a ruleset into the network namespace of the calling thread, all of it or nothing.
func Apply(ctx context.Context, ruleset string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(ruleset)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// Run enforces until ctx is done, and leaves the rules as they are then, so that no pod is open while a
// successor starts. It returns an error when a policy is not supported or nft fails: what the node does is no
// longer what the objects say.
func (e *Enforcer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactory(e.cfg.Client, 0)
	defer factory.Shutdown()
	defer cancel()
	changed := notify.NewSignal()
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed.Notify() },
		UpdateFunc: func(any, any) { changed.Notify() },
		DeleteFunc: func(any) { changed.Notify() },
	}
	for _, informer := range []cache.SharedIndexInformer{
		factory.Networking().V1().NetworkPolicies().Informer(),
		factory.Core().V1().Pods().Informer(),
		factory.Core().V1().Namespaces().Informer(),
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	applied := ""
	for ctx.Err() == nil {
		var err error
		if applied, err = e.enforce(ctx, factory, applied); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return nil
}

// enforce applies the ruleset of the objects of the moment, unless it is applied, and returns it.
func (e *Enforcer) enforce(ctx context.Context, from informers.SharedInformerFactory, applied string) (string, error) {
	objects, err := list(from)
	if err != nil {
		return "", err
	}
	ruleset, err := Ruleset(e.cfg.Node, objects)
	if err != nil {
		return "", err
	}
	if ruleset == applied {
		return applied, nil
	}
	if err := e.cfg.Apply(ctx, ruleset); err != nil {
		return "", err
	}
	e.cfg.Log.Info().Int("policies", len(objects.Policies)).Int("pods", len(objects.Pods)).Msg("rules applied")
	return ruleset, nil
}

// list returns what the informers have.
func list(from informers.SharedInformerFactory) (objects Objects, err error) {
	if objects.Policies, err = from.Networking().V1().NetworkPolicies().Lister().List(labels.Everything()); err != nil {
		return objects, fmt.Errorf("list NetworkPolicies: %w", err)
	}
	if objects.Pods, err = from.Core().V1().Pods().Lister().List(labels.Everything()); err != nil {
		return objects, fmt.Errorf("list pods: %w", err)
	}
	if objects.Namespaces, err = from.Core().V1().Namespaces().Lister().List(labels.Everything()); err != nil {
		return objects, fmt.Errorf("list namespaces: %w", err)
	}
	return objects, nil
}
