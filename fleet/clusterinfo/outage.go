package clusterinfo

import (
	"context"
	"time"

	"github.com/rs/zerolog"
)

// Values of the label result.
const (
	resultOK    = "ok"
	resultError = "error"
)

func resultOf(err error) string {
	if err != nil {
		return resultError
	}
	return resultOK
}

// outage follows whether Redis answers. It belongs to one goroutine.
type outage struct {
	log   zerolog.Logger
	pause time.Duration // before the next attempt; zero while Redis answers
}

// met takes the result of an attempt. It says once that Redis is away, and once
// that it is back.
func (o *outage) met(err error) {
	switch {
	case err != nil && o.pause == 0:
		o.pause = retryFirst
		o.log.Warn().Err(err).Msg("Redis does not answer, retrying")
	case err != nil:
		o.pause = min(2*o.pause, retryMost)
	case o.pause != 0:
		o.pause = 0
		o.log.Info().Msg("Redis answers again")
	}
}

// wait returns after d, or when closed is closed; false when ctx is done.
func wait(ctx context.Context, closed <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-closed:
	case <-ctx.Done():
		return false
	}
	return true
}
