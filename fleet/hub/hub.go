// Package hub keeps what a hub has decided once and each of its principals follows: its
// identity, and whether managed agents get its AppProject default; and what is left of the
// budget of all agents. All are in ConfigMap argomesh-hub, which outlives principals and is
// part of a backup.
//
//	kept, err := hub.Keeper{Client: client, Namespace: "argocd"}.Keep(ctx)
package hub

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// ConfigMap is the name of the object. It is in the hub's Argo CD namespace.
const ConfigMap = "argomesh-hub"

// The keys of its data.
const (
	uidKey            = "uid"
	defaultProjectKey = "default-project"
	budgetKey         = "budget-bytes"
	budgetAtKey       = "budget-at"
	// UntakenKey is how many Applications of the hub no agent takes.
	UntakenKey = "untaken-applications"
)

// DefaultProject says whether managed agents get the hub's AppProject default.
type DefaultProject string

// The values of [DefaultProject].
const (
	// NotShared is the decision of a hub that never shared it.
	NotShared DefaultProject = "not-shared"
	// Shared is the decision of a hub that shares it, as every hub did before there
	// was a choice.
	Shared DefaultProject = "shared"
	// NoLongerShared is the decision of a hub that shared it once: spokes may have
	// copies, which they keep.
	NoLongerShared DefaultProject = "no-longer-shared"
)

// Hub is what the ConfigMap says.
type Hub struct {
	// UID identifies the hub. A spoke tells the copies of this hub from another's by it.
	UID            string
	DefaultProject DefaultProject
	// Common is what was left of the budget of all agents.
	Common Common
}

// Common is what was left of a budget of bytes at a time. The zero value says nothing.
type Common struct {
	Bytes int64
	At    time.Time
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// Keeper reads the ConfigMap, and writes what it does not say yet.
type Keeper struct {
	Client    dynamic.Interface
	Namespace string
	// ShareDefault is what a person has set of the AppProject default; nil for nothing.
	ShareDefault *bool
}

// Keep returns what the ConfigMap says once it says all, and as ShareDefault wants it.
// Writes are tested, so that of several principals one decides and all read the same. It
// may be called concurrently. An error passes when the API server answers, unless its
// text says what a person has to do.
func (k Keeper) Keep(ctx context.Context) (Hub, error) {
	there, err := k.maps().Get(ctx, ConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return k.create(ctx)
	}
	if err != nil {
		return Hub{}, fmt.Errorf("read ConfigMap %s/%s: %w", k.Namespace, ConfigMap, err)
	}
	kept, err := k.parse(there)
	if err != nil {
		return Hub{}, err
	}
	// A ConfigMap that says nothing of it is from a release that always shared.
	next := kept
	next.DefaultProject = decide(kept.DefaultProject, true, k.ShareDefault)
	if next == kept {
		return kept, nil
	}
	if err := unstructured.SetNestedField(there.Object, string(next.DefaultProject), "data", defaultProjectKey); err != nil {
		return Hub{}, fmt.Errorf("ConfigMap %s/%s: %w", k.Namespace, ConfigMap, err)
	}
	// The resourceVersion of what was read tests the write.
	if _, err := k.maps().Update(ctx, there, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
		return Hub{}, fmt.Errorf("write key %s of ConfigMap %s/%s: %w", defaultProjectKey, k.Namespace, ConfigMap, err)
	}
	return next, nil
}

// KeepCommon has the ConfigMap, which is there once Keep has returned, say what is left of
// the budget of all agents. An error passes.
func (k Keeper) KeepCommon(ctx context.Context, c Common) error {
	return k.keep(ctx, map[string]string{budgetKey: strconv.FormatInt(c.Bytes, 10), budgetAtKey: c.At.UTC().Format(time.RFC3339)})
}

// KeepUntaken has the ConfigMap say how many Applications no agent takes. An error passes.
func (k Keeper) KeepUntaken(ctx context.Context, n int) error {
	return k.keep(ctx, map[string]string{UntakenKey: strconv.Itoa(n)})
}

// keep writes these keys, unless the ConfigMap has them so.
func (k Keeper) keep(ctx context.Context, data map[string]string) error {
	there, err := k.maps().Get(ctx, ConfigMap, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", k.Namespace, ConfigMap, err)
	}
	same := true
	for key, value := range data {
		kept, _, _ := unstructured.NestedString(there.Object, "data", key)
		same = same && kept == value
		if err := unstructured.SetNestedField(there.Object, value, "data", key); err != nil {
			return fmt.Errorf("ConfigMap %s/%s: %w", k.Namespace, ConfigMap, err)
		}
	}
	if same {
		return nil
	}
	if _, err := k.maps().Update(ctx, there, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", k.Namespace, ConfigMap, err)
	}
	return nil
}

// commonOf is what the ConfigMap says of the budget. What nobody can read says nothing: no
// more is lost than one burst.
func commonOf(o *unstructured.Unstructured) Common {
	level, _, _ := unstructured.NestedString(o.Object, "data", budgetKey)
	at, _, _ := unstructured.NestedString(o.Object, "data", budgetAtKey)
	bytes, err := strconv.ParseInt(level, 10, 64)
	if err != nil {
		return Common{}
	}
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return Common{}
	}
	return Common{Bytes: bytes, At: t}
}

const fieldManager = "argomesh-principal"

// create makes the ConfigMap with all that it has to say.
func (k Keeper) create(ctx context.Context) (Hub, error) {
	earlier, err := k.served(ctx)
	if err != nil {
		return Hub{}, err
	}
	made := Hub{UID: uuid.NewString(), DefaultProject: decide("", earlier, k.ShareDefault)}
	_, err = k.maps().Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": ConfigMap, "namespace": k.Namespace,
			"labels": map[string]any{"app.kubernetes.io/part-of": "argomesh"},
		},
		"data": map[string]any{uidKey: made.UID, defaultProjectKey: string(made.DefaultProject)},
	}}, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil { // another principal may have been faster: the next call reads its
		return Hub{}, fmt.Errorf("make ConfigMap %s/%s: %w", k.Namespace, ConfigMap, err)
	}
	return made, nil
}

// served reports whether an agent was ever connected to this hub.
func (k Keeper) served(ctx context.Context) (bool, error) {
	agents, err := k.Client.Resource(v1alpha1.AgentResource).Namespace(k.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list Agents: %w", err)
	}
	for _, a := range agents.Items {
		if _, has, _ := unstructured.NestedMap(a.Object, "status", "history"); has {
			return true, nil
		}
	}
	return false, nil
}

func (k Keeper) maps() dynamic.ResourceInterface {
	return k.Client.Resource(configMaps).Namespace(k.Namespace)
}

func (k Keeper) parse(o *unstructured.Unstructured) (Hub, error) {
	uid, _, _ := unstructured.NestedString(o.Object, "data", uidKey)
	if uid == "" {
		return Hub{}, fmt.Errorf("ConfigMap %s/%s has no data.%s: delete it to give the hub a new identity", k.Namespace, ConfigMap, uidKey)
	}
	text, _, _ := unstructured.NestedString(o.Object, "data", defaultProjectKey)
	switch d := DefaultProject(text); d {
	case "", NotShared, Shared, NoLongerShared:
		return Hub{UID: uid, DefaultProject: d, Common: commonOf(o)}, nil
	}
	return Hub{}, fmt.Errorf("ConfigMap %s/%s: data.%s is %q, and may be %s, %s or %s",
		k.Namespace, ConfigMap, defaultProjectKey, text, NotShared, Shared, NoLongerShared)
}

// decide is what the ConfigMap is to say. kept is what it says, empty for nothing;
// earlier reports whether the hub served agents before there was a choice; asked is what
// a person has set, nil for nothing.
func decide(kept DefaultProject, earlier bool, asked *bool) DefaultProject {
	if kept == "" {
		if kept = NotShared; earlier {
			kept = Shared
		}
	}
	switch {
	case asked == nil:
		return kept
	case *asked:
		return Shared
	case kept == Shared:
		return NoLongerShared
	}
	return kept
}
