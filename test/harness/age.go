//go:build linux

package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Age has the custom resources of a kind in a namespace look as if they were made that
// much earlier, which no API server does: it writes to etcd.
func (c *ControlPlane) Age(ctx context.Context, resource schema.GroupVersionResource, namespace string, by time.Duration) error {
	prefix := fmt.Sprintf("%s/%s/%s/%s/", c.etcdPrefix(), resource.Group, resource.Resource, namespace)
	return c.Etcd.rewrite(ctx, prefix, func(value []byte) ([]byte, error) {
		var o unstructured.Unstructured
		if err := o.UnmarshalJSON(value); err != nil {
			return nil, err
		}
		made := o.GetCreationTimestamp()
		made.Time = made.Add(-by)
		o.SetCreationTimestamp(made)
		return o.MarshalJSON()
	})
}

// etcdValue is a key and its value, as etcd's JSON gateway has it.
type etcdValue struct {
	Key         []byte `json:"key"`
	Value       []byte `json:"value"`
	ModRevision string `json:"mod_revision"`
}

// rewrite changes the values of all keys that begin with prefix. It fails when someone
// else writes one meanwhile.
func (e *Etcd) rewrite(ctx context.Context, prefix string, change func([]byte) ([]byte, error)) error {
	end := []byte(prefix)
	end[len(end)-1]++
	var found struct {
		KVs []etcdValue `json:"kvs"`
	}
	if err := e.call(ctx, "range", map[string]any{"key": []byte(prefix), "range_end": end}, &found); err != nil {
		return err
	}
	for _, kv := range found.KVs {
		value, err := change(kv.Value)
		if err != nil {
			return fmt.Errorf("value of %s: %w", kv.Key, err)
		}
		swapped, err := e.swap(ctx, kv, value)
		if err != nil {
			return err
		}
		if !swapped {
			return fmt.Errorf("%s was written meanwhile", kv.Key)
		}
	}
	return nil
}

// swap writes a value if the key has not changed since it was read.
func (e *Etcd) swap(ctx context.Context, kv etcdValue, value []byte) (bool, error) {
	var reply struct {
		Succeeded bool `json:"succeeded"`
	}
	err := e.call(ctx, "txn", map[string]any{
		"compare": []any{map[string]any{"key": kv.Key, "target": "MOD", "result": "EQUAL", "mod_revision": kv.ModRevision}},
		"success": []any{map[string]any{"requestPut": map[string]any{"key": kv.Key, "value": value}}},
	}, &reply)
	return reply.Succeeded, err
}

func (e *Etcd) call(ctx context.Context, method string, body, reply any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+"/v3/kv/"+method, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("etcd %s: %w", method, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd %s: %s", method, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(reply)
}
