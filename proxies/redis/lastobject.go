package redis

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/proxies/redis/values"
	"github.com/argomesh/argomesh/stream/quota"
)

// Object names an object of an Application. The namespace is empty for what has none.
type Object struct{ Group, Kind, Namespace, Name string }

// LastLive returns an object as the spoke's Argo CD saw it when its managed resources were
// last read, and when that was; false when it is not known, or the Application is not that
// agent's. The UID is that of the Agent. The value is measured as for callers, and what is
// longer than a tree that is marked is not looked through. What it returns is the spoke's
// word.
func (h *Hub) LastLive(ctx context.Context, agent identity.AgentName, uid string, i appkey.Instance,
	of Object) (live []byte, at time.Time, ok bool) {
	format := h.cacheFormat()
	target, isOwned, err := h.cfg.Owners.Owner(i)
	if h.lastKnown == nil || format == "" || err != nil || !isOwned || !target.Known || target.Agent != agent ||
		target.UID != uid {
		return nil, time.Time{}, false
	}
	key := owned{key: appkey.Key{Family: appkey.ManagedResources, Instance: i, Format: format}, target: target}
	release, err := h.cfg.Quota.Acquire(ctx, agent, quota.Working, values.MarkingBytes)
	if err != nil {
		return nil, time.Time{}, false // no one waits for it
	}
	defer release()
	value, age := h.lastKnown.last(ctx, key)
	defer h.cfg.Quota.Compute(agent).End()
	if value == nil || values.MeasuredWhole(key.key, value) != nil {
		return nil, time.Time{}, false
	}
	text, err := values.Expand(value, strings.HasSuffix(format, appkey.CompressedFormat))
	if err != nil {
		return nil, time.Time{}, false
	}
	live, ok = findLive(text, of)
	return live, time.Now().Add(-age), ok
}

// findLive returns the live state of one of the managed resources of an Application. They
// are decoded one after the other.
func findLive(text []byte, of Object) ([]byte, bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	if begin, err := d.Token(); err != nil || begin != json.Delim('[') {
		return nil, false
	}
	for d.More() {
		var item struct {
			Object

			LiveState string `json:"liveState"`
		}
		if err := d.Decode(&item); err != nil {
			return nil, false
		}
		if item.Object == of {
			return []byte(item.LiveState), item.LiveState != "" && item.LiveState != "null"
		}
	}
	return nil, false
}
