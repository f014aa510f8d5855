package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fetchTime bounds one call for a JWT-SVID.
const fetchTime = 5 * time.Second

// FetchToken returns a new JWT-SVID of our identity for the audiences, of which
// there is one at least. The Workload API may give the same one again for some time.
// Whose X.509-SVID is not valid gets none. Errors wrap [ErrNotReady].
func (s *Source) FetchToken(ctx context.Context, audiences ...string) (*jwtsvid.SVID, error) {
	svid, err := s.fetch(ctx, audiences)
	result := "ok"
	if err != nil {
		result = "failed"
		err = fmt.Errorf("%w: JWT-SVID: %w", ErrNotReady, err)
	}
	s.metrics.tokens.WithLabelValues(result).Inc()
	return svid, err
}

func (s *Source) fetch(ctx context.Context, audiences []string) (*jwtsvid.SVID, error) {
	if len(audiences) == 0 {
		return nil, errors.New("no audience")
	}
	own, err := s.GetX509SVID()
	if err != nil {
		return nil, err
	}
	client := s.client.Load()
	if client == nil {
		return nil, errors.New("the source does not run")
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	svids, err := client.FetchJWTSVIDs(ctx,
		jwtsvid.Params{Subject: own.ID, Audience: audiences[0], ExtraAudiences: audiences[1:]})
	if err != nil {
		return nil, err
	}
	for _, svid := range svids {
		if svid.ID == own.ID && (s.hint == "" || svid.Hint == s.hint) {
			return svid, nil
		}
	}
	return nil, fmt.Errorf("the Workload API gave none with %s", wanted(own.ID, s.hint))
}

// Token is a JWT-SVID of ours for the same audiences again and again. Its methods may
// be called concurrently.
type Token struct {
	source    *Source
	audiences []string

	mu      sync.Mutex // guards what follows
	current *jwtsvid.SVID
	renewAt time.Time
}

// Token returns one for the audiences, of which there is one at least. It asks for
// nothing yet.
func (s *Source) Token(audiences ...string) *Token {
	return &Token{source: s, audiences: audiences}
}

// Get returns a JWT-SVID that is valid now, and when to call again for the next: at
// half of what is left of its life. As long as the one held is valid, a Workload API
// that is away does not matter; when it says that the identity is gone, so is what
// was held. Errors wrap [ErrNotReady].
func (t *Token) Get(ctx context.Context) (svid *jwtsvid.SVID, renewAt time.Time, err error) {
	own, err := t.source.GetX509SVID()
	if err != nil {
		return nil, time.Time{}, err
	}
	t.mu.Lock()
	held, renewAt := t.current, t.renewAt
	t.mu.Unlock()
	if held != nil && held.ID != own.ID {
		held = nil
	}
	if held != nil && time.Now().Before(renewAt) {
		return held, renewAt, nil
	}
	svid, err = t.source.FetchToken(ctx, t.audiences...)
	if err != nil {
		if held == nil || !time.Now().Before(held.Expiry) || status.Code(err) == codes.PermissionDenied {
			t.store(nil, time.Time{})
			return nil, time.Time{}, err
		}
		return held, time.Now().Add(lastRetry), nil
	}
	renewAt = time.Now().Add(max(time.Until(svid.Expiry)/2, lastRetry))
	t.store(svid, renewAt)
	return svid, renewAt, nil
}

func (t *Token) store(svid *jwtsvid.SVID, renewAt time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current, t.renewAt = svid, renewAt
	notAfter := t.source.metrics.tokenNotAfter
	if svid == nil {
		notAfter.Reset()
		return
	}
	notAfter.WithLabelValues(svid.ID.String()).Set(float64(svid.Expiry.Unix()))
}
