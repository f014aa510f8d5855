package redis

import (
	"context"
	"strings"

	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/proxies/redis/values"
	"github.com/argomesh/argomesh/stream/quota"
)

// marked returns a value with the age that it has: a tree says so at each of its roots.
// What is no tree is returned as it is.
func (h *Hub) marked(ctx context.Context, of owned, value []byte, age string) []byte {
	if of.key.Family != appkey.ResourcesTree {
		return value
	}
	release, err := h.cfg.Quota.Acquire(ctx, of.target.Agent, quota.Working, values.MarkingBytes)
	if err != nil {
		return value // no one waits for it
	}
	defer release()
	defer h.cfg.Quota.Compute(of.target.Agent).End()
	marked, err := values.MarkTree(value, strings.HasSuffix(of.key.Format, appkey.CompressedFormat), age)
	if err != nil {
		h.cfg.Log.Debug().Err(err).Msg("a last value is shown without its age")
		return value
	}
	return marked
}
