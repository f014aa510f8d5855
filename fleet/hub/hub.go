// Package hub keeps what a hub has decided once and each of its principals follows: its
// identity, by what it tells whose an Application is, and whether managed agents get its
// AppProject default; what is left of the budget of all agents; and what a person may ask: of
// which release the principal is, and how many Applications no agent takes. All are in
// ConfigMap argomesh-hub, which outlives principals and is part of a backup.
//
//	kept, err := hub.Store{Client: client, Namespace: "argocd"}.Ensure(ctx)
package hub

import (
	"context"
	"errors"
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
	budgetKey   = "budget-bytes"
	budgetAtKey = "budget-at"
	// UIDKey is the UID of the hub, by which agents know it.
	UIDKey = "uid"
	// MappingKey is a [Mapping].
	MappingKey = "mapping"
	// DefaultProjectKey is a [DefaultProject].
	DefaultProjectKey = "default-project"
	// UntakenKey is how many Applications of the hub no agent takes.
	UntakenKey = "untaken-applications"
	// VersionKey is the release of the principal that has the Lease, or had it last.
	VersionKey = "principal-version"
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

// Mapping is by what a hub tells whose an Application of a managed agent is. The zero value
// says nothing.
type Mapping string

// The values of [Mapping].
const (
	// ByNamespace is the mapping of every hub before there was a choice, and of one that
	// was never asked before mappings were kept.
	ByNamespace Mapping = "namespace"
	// ByDestination is that of a new hub.
	ByDestination Mapping = "destination"
)

// Hub is what the ConfigMap says.
type Hub struct {
	// UID identifies the hub. A spoke tells the copies of this hub from another's by it.
	UID            string
	DefaultProject DefaultProject
	// Mapping is the one in force.
	Mapping Mapping
	// Common is what was left of the budget of all agents.
	Common Common
}

// Common is what was left of a budget of bytes at a time. The zero value says nothing.
type Common struct {
	Bytes int64
	At    time.Time
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// Store reads the ConfigMap, and writes what it does not say yet.
type Store struct {
	Client    dynamic.Interface
	Namespace string
	// ShareDefault is what a person has set of the AppProject default; nil for nothing.
	ShareDefault *bool
	// Mapping is what a person has set; empty for nothing. It decides once: where the
	// ConfigMap has a mapping, that stays in force.
	Mapping Mapping
}

// ensureAttempts is how often Ensure writes before it gives up: it makes the ConfigMap, or adds
// what is missing, and reads what is there then.
const ensureAttempts = 2

// Ensure returns what the ConfigMap says once it says all, and as ShareDefault wants it. What
// it returns was read, never only written. Writes are tested, so that of several principals
// one decides and all read the same. It may be called concurrently. An error passes when the
// API server answers, unless its text says what a person has to do.
func (k Store) Ensure(ctx context.Context) (Hub, error) {
	for range ensureAttempts {
		there, err := k.maps().Get(ctx, ConfigMap, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			if err := k.create(ctx); err != nil {
				return Hub{}, err
			}
			continue
		}
		if err != nil {
			return Hub{}, fmt.Errorf("read ConfigMap %s/%s: %w", k.Namespace, ConfigMap, err)
		}
		kept, err := k.parse(there)
		if err != nil {
			return Hub{}, err
		}
		next := k.decide(kept, true) // what the ConfigMap does not say is as earlier releases had it
		if next == kept {
			return kept, nil
		}
		if err := k.write(ctx, there,
			map[string]string{DefaultProjectKey: string(next.DefaultProject), MappingKey: string(next.Mapping)}); err != nil {
			return Hub{}, err
		}
	}
	return Hub{}, fmt.Errorf("ConfigMap %s/%s was changed by another writer while it was written", k.Namespace, ConfigMap)
}

// decide is what the ConfigMap is to say. earlier reports whether the hub was there before
// there was a choice.
func (k Store) decide(kept Hub, earlier bool) Hub {
	kept.DefaultProject = decide(kept.DefaultProject, earlier, k.ShareDefault)
	kept.Mapping = decideMapping(kept.Mapping, earlier, k.Mapping)
	return kept
}

// decideMapping is the mapping that the ConfigMap is to say. kept is what it says, empty for
// nothing; earlier reports whether the hub was there before there was a choice; asked is
// what a person has set, empty for nothing.
func decideMapping(kept Mapping, earlier bool, asked Mapping) Mapping {
	switch {
	case kept != "":
		return kept
	case asked != "":
		return asked
	case earlier:
		return ByNamespace
	}
	return ByDestination
}

// Expect returns what Ensure would return, and writes nothing. Where the ConfigMap is not there
// yet, the UID is empty.
func (k Store) Expect(ctx context.Context) (Hub, error) {
	kept, err := k.Read(ctx)
	if !apierrors.IsNotFound(err) {
		return k.decide(kept, true), err
	}
	earlier, err := k.served(ctx)
	return k.decide(Hub{}, earlier), err
}

// Read returns what the ConfigMap says, which Ensure has completed. An error passes, unless
// its text says what a person has to do.
func (k Store) Read(ctx context.Context) (Hub, error) {
	there, err := k.maps().Get(ctx, ConfigMap, metav1.GetOptions{})
	if err != nil {
		return Hub{}, fmt.Errorf("read ConfigMap %s/%s: %w", k.Namespace, ConfigMap, err)
	}
	return k.parse(there)
}

// write is tested on the resourceVersion of what was read.
func (k Store) write(ctx context.Context, there *unstructured.Unstructured, data map[string]string) error {
	for key, value := range data {
		if err := unstructured.SetNestedField(there.Object, value, "data", key); err != nil {
			return fmt.Errorf("ConfigMap %s/%s: %w", k.Namespace, ConfigMap, err)
		}
	}
	if _, err := k.maps().Update(ctx, there, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", k.Namespace, ConfigMap, err)
	}
	return nil
}

// ErrMapping is wrapped by what SetMapping returns when another mapping is in force than the
// caller knows.
var ErrMapping = errors.New("the mapping of the hub has changed")

// SetMapping puts a mapping in force where another one is, as the caller has seen. Every
// principal follows it. It loses to anyone who writes at the same time; such an error passes.
func (k Store) SetMapping(ctx context.Context, from, to Mapping) error {
	there, err := k.maps().Get(ctx, ConfigMap, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", k.Namespace, ConfigMap, err)
	}
	kept, err := k.parse(there)
	if err != nil {
		return err
	}
	if kept.Mapping != from {
		return fmt.Errorf("%w: it is %q, and was %q", ErrMapping, kept.Mapping, from)
	}
	return k.write(ctx, there, map[string]string{MappingKey: string(to)})
}

// SaveCommon has the ConfigMap, which is there once Ensure has returned, say what is left of
// the budget of all agents. An error passes.
func (k Store) SaveCommon(ctx context.Context, c Common) error {
	return k.writeKeys(ctx, map[string]string{budgetKey: strconv.FormatInt(c.Bytes, 10), budgetAtKey: c.At.UTC().
		Format(time.RFC3339)})
}

// SaveUntaken has the ConfigMap say how many Applications no agent takes. An error passes.
func (k Store) SaveUntaken(ctx context.Context, n int) error {
	return k.writeKeys(ctx, map[string]string{UntakenKey: strconv.Itoa(n)})
}

// SaveVersion has the ConfigMap say of which release the principal is. An error passes.
func (k Store) SaveVersion(ctx context.Context, version string) error {
	return k.writeKeys(ctx, map[string]string{VersionKey: version})
}

// writeKeys writes these keys, unless the ConfigMap has them so.
func (k Store) writeKeys(ctx context.Context, data map[string]string) error {
	there, err := k.maps().Get(ctx, ConfigMap, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", k.Namespace, ConfigMap, err)
	}
	same := true
	for key, value := range data {
		kept, _, _ := unstructured.NestedString(there.Object, "data", key)
		same = same && kept == value
	}
	if same {
		return nil
	}
	return k.write(ctx, there, data)
}

// commonOf is what the ConfigMap says of the budget. What no one can read says nothing: no
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
func (k Store) create(ctx context.Context) error {
	earlier, err := k.served(ctx)
	if err != nil {
		return err
	}
	made := k.decide(Hub{UID: uuid.NewString()}, earlier)
	_, err = k.maps().Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": ConfigMap, "namespace": k.Namespace,
			"labels": map[string]any{"app.kubernetes.io/part-of": "argomesh"},
		},
		"data": map[string]any{UIDKey: made.UID, DefaultProjectKey: string(made.DefaultProject),
			MappingKey: string(made.Mapping)},
	}}, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) { // else another principal was faster: its is read
		return fmt.Errorf("make ConfigMap %s/%s: %w", k.Namespace, ConfigMap, err)
	}
	return nil
}

// served reports whether an agent was ever connected to this hub.
func (k Store) served(ctx context.Context) (bool, error) {
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

func (k Store) maps() dynamic.ResourceInterface {
	return k.Client.Resource(configMaps).Namespace(k.Namespace)
}

func (k Store) parse(o *unstructured.Unstructured) (Hub, error) {
	uid, _, _ := unstructured.NestedString(o.Object, "data", UIDKey)
	if uid == "" {
		return Hub{}, fmt.Errorf("ConfigMap %s/%s has no data.%s: delete it to give the hub a new identity", k.Namespace,
			ConfigMap, UIDKey)
	}
	kept := Hub{UID: uid, Common: commonOf(o)}
	text := func(key string) string { s, _, _ := unstructured.NestedString(o.Object, "data", key); return s }
	switch kept.DefaultProject = DefaultProject(text(DefaultProjectKey)); kept.DefaultProject {
	case "", NotShared, Shared, NoLongerShared:
	default:
		return Hub{}, fmt.Errorf("ConfigMap %s/%s: data.%s is %q, and may be %s, %s or %s",
			k.Namespace, ConfigMap, DefaultProjectKey, kept.DefaultProject, NotShared, Shared, NoLongerShared)
	}
	switch kept.Mapping = Mapping(text(MappingKey)); kept.Mapping {
	case "", ByNamespace, ByDestination:
	default:
		return Hub{}, fmt.Errorf("ConfigMap %s/%s: data.%s is %q, and may be %s or %s",
			k.Namespace, ConfigMap, MappingKey, kept.Mapping, ByNamespace, ByDestination)
	}
	return kept, nil
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
