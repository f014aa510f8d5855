package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/proxies/redis/resp"
	"github.com/argomesh/argomesh/proxies/redis/values"
	"github.com/argomesh/argomesh/stream"
)

// missing is the answer when none of the keys is there.
func (f *fetch) missing() []byte {
	switch f.verb {
	case "EXISTS":
		return []byte(":0\r\n")
	case "TTL":
		return []byte(":-2\r\n")
	case "MGET":
		b := resp.AppendHeader(nil, '*', len(f.keys))
		for range f.keys {
			b = resp.AppendNull(b, false)
		}
		return b
	}
	return []byte("$-1\r\n")
}

// failed says what is known without the agent, or why nothing is.
func (f *fetch) failed(ctx context.Context, err error) *reply {
	name := f.keys[0].target.Agent
	var (
		answered resp.RefusalError
		timeout  net.Error
	)
	result := "away"
	switch {
	case errors.As(err, &answered) && answered.Code == appkey.SpokeFormat && appkey.IsFormat(answered.Rest):
		f.hub.metrics.reads.WithLabelValues("format").Inc()
		f.remote.warnFormat()
		f.noteFormat(answered.Rest)
		return &reply{raw: resp.EncodeError(fmt.Sprintf("%s the Argo CD of agent %s keeps its cache as %s, and %s is asked for: "+
			"both must be of one release, with one --redis-compress", codeFormat, name, answered.Rest, f.asked[0].key.Format))}
	case errors.Is(err, stream.ErrRefused), errors.As(err, &answered) && answered.Code == appkey.SpokeDenied:
		f.hub.metrics.reads.WithLabelValues("refused").Inc()
		return &reply{raw: resp.EncodeError(fmt.Sprintf("%s agent %s does not let the hub read its Redis: see redis_proxy.enabled there", codeRefused, name))}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		result = "timeout"
	case errors.Is(err, resp.ErrProtocol), errors.Is(err, resp.ErrTooLong):
		f.remote.warn("protocol", "cannot read the answer of an agent")
	}
	f.hub.metrics.reads.WithLabelValues(result).Inc()
	f.remote.unanswered()
	if raw, ok := f.last(ctx, f.remote.absence(err)); ok {
		return &reply{raw: raw}
	}
	why := "is not connected"
	if !errors.Is(err, stream.ErrNotConnected) {
		why = "is connected, but its Redis does not answer"
	}
	return &reply{raw: resp.EncodeError(fmt.Sprintf("%s agent %s %s, and no last value is kept", codeAway, name, why))}
}

// last answers from what was kept, and says in it why nothing newer is shown.
func (f *fetch) last(ctx context.Context, why string) ([]byte, bool) {
	if f.hub.lastKnown == nil {
		return nil, false
	}
	var b []byte
	if f.verb == "MGET" {
		b = resp.AppendHeader(b, '*', len(f.keys))
	}
	there, left := 0, int64(-2)
	for _, k := range f.keys {
		value, age := f.hub.lastKnown.last(ctx, k)
		if value != nil && values.MeasuredWhole(k.key, value) != nil {
			value = nil // kept by an earlier release
		}
		if value != nil {
			there++
			left = int64((KeptFor - age) / time.Second)
			f.hub.metrics.lastAge.Observe(age.Seconds())
		}
		switch {
		case f.verb != "MGET" && f.verb != "GET":
		case value == nil:
			b = resp.AppendNull(b, false)
		default:
			b = resp.AppendBulk(b, string(f.hub.marked(ctx, k, value, "as of "+values.Clock(time.Now().Add(-age))+", "+why)))
		}
	}
	if there == 0 {
		return nil, false
	}
	switch f.verb {
	case "EXISTS":
		b = resp.AppendNumber(b, int64(there))
	case "TTL":
		b = resp.AppendNumber(b, max(left, 0))
	}
	return b, true
}
