package resource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
	"github.com/argomesh/argomesh/proxies/resource/exchange"
	"github.com/argomesh/argomesh/proxies/resource/mediatype"
	"github.com/argomesh/argomesh/proxies/resource/replies"
)

// learnTime bounds one question for the kinds of an API version.
const learnTime = 10 * time.Second

// What becomes of them, as the metrics have it.
const (
	learnKnown   = "known"
	learnLearned = "learned"
	learnRefused = "refused"
	learnFailed  = "failed"
)

// Learn has the kinds of an API version of a spoke known, if they are not, as they are asked for
// by who then asks for an object: so that one is given while the spoke is away, although no one has
// read any while it was there. The group is empty for the core. It asks as a caller
// would be let, within the limits of all calls; since no one calls, there is no record. It returns
// whether they are known, and may be called concurrently.
func (h *Hub) Learn(ctx context.Context, agent identity.AgentName, group, version string) bool {
	result := h.learn(ctx, agent, group, version)
	h.metrics.Learned.WithLabelValues(result).Inc()
	return result == learnKnown || result == learnLearned
}

func (h *Hub) learn(ctx context.Context, agent identity.AgentName, group, version string) (result string) {
	path, ok := kindsPath(group, version)
	target, err := h.cfg.Agents.Target(agent)
	if !ok || err != nil {
		return learnRefused
	}
	there, err := url.ParseRequestURI(path)
	if err != nil {
		return learnRefused
	}
	header := http.Header{"Accept": {mediatype.Plain}, "User-Agent": {"argomesh-principal"}}
	request, err := access.Parse(http.MethodGet, path, header)
	if err != nil || !target.Policy.Decide(request).Allowed {
		return learnRefused
	}
	key, kept := replies.KeyOf(agent, target.UID, request, there, header)
	if !kept {
		return learnRefused
	}
	if h.cfg.Replies.Has(ctx, key) {
		return learnKnown
	}
	if h.limiter.Acquire(agent) != "" {
		return learnFailed
	}
	defer h.limiter.Release(agent)
	ctx, cancel := context.WithTimeout(ctx, learnTime)
	defer cancel()
	if err := h.ask(ctx, key, header); err != nil {
		h.cfg.Log.Debug().Err(err).Stringer("agent", agent).Str("path", path).Msg("the kinds of an API version are not known")
		return learnFailed
	}
	if !h.cfg.Replies.Cached(key) {
		return learnFailed
	}
	return learnLearned
}

// kindsPath is where an API server lists the kinds of a version; false for what is none. Both come
// from a spoke.
func kindsPath(group, version string) (string, bool) {
	if len(validation.IsDNS1123Label(version)) > 0 {
		return "", false
	}
	if group == "" {
		return "/api/" + version, true
	}
	return "/apis/" + group + "/" + version, len(validation.IsDNS1123Subdomain(group)) == 0
}

// errNoKinds is an answer without the kinds of a version.
var errNoKinds = errors.New("the spoke does not tell")

// ask has the reply kept of that key.
func (h *Hub) ask(ctx context.Context, key replies.Key, header http.Header) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+key.Agent.String()+key.Path, http.NoBody)
	if err != nil {
		return err
	}
	req.Header = header
	res, err := h.agents.RoundTrip(req)
	if err != nil {
		if unansweredBy(err) == isClosed {
			h.cfg.Replies.ForgetAgent(key.Agent, key.UID)
			h.refusals.close(key.Agent, key.UID)
		}
		return err
	}
	defer func() { _ = res.Body.Close() }() // all was read, or it is of no use
	c := &call{hub: h}
	c.noteAnsweredBy(res)
	own := res.Header.Get(exchange.HeaderOwnKinds) != ""
	exchange.StripAnswer(res.Header)
	if c.record.AnsweredBy != audit.ByAPIServer || res.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: it answers %d", errNoKinds, res.StatusCode)
	}
	if err := exchange.BoundAnswer(res, exchange.MaxListAnswer, h.metrics.Cut.Inc); err != nil {
		return err
	}
	h.cfg.Replies.Observe(key, own, res, time.Now())
	_, err = io.Copy(io.Discard, res.Body)
	return errors.Join(err, res.Body.Close())
}
