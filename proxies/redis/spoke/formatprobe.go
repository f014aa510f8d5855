package spoke

import (
	"errors"
	"strconv"
	"time"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/argomesh/argomesh/proxies/redis/resp"
)

const (
	// checkEvery is how often the format of the spoke's keys is checked while keys
	// are missing, scanSteps and scanCount how many keys at most.
	checkEvery = 30 * time.Second
	scanSteps  = 20
	scanCount  = 1000
)

// missing answers that there is no such key, unless all are in another format.
func (c *spokeSession) missing() error {
	if _, err := c.fromRedis.Line(); err != nil {
		return err
	}
	other, err := c.otherFormat()
	if err != nil {
		return err
	}
	if other != "" {
		c.count(resultFormat)
		c.writeLocked(resp.EncodeError(appkey.SpokeFormat + " " + other))
		return nil
	}
	c.count(resultOK)
	c.writeLocked(resp.AppendNull(nil, false))
	return nil
}

// otherFormat returns the format of the spoke's keys when none is in ours; empty when
// there is one, or none at all. It checks at most every checkEvery.
func (c *spokeSession) otherFormat() (string, error) {
	s := c.spoke
	s.mu.Lock()
	if time.Since(s.checked) < checkEvery {
		defer s.mu.Unlock()
		return s.other, nil
	}
	s.checked = time.Now() // others go on with what was seen last
	before := s.other
	s.mu.Unlock()
	other, err := c.scanFormat()
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	s.other = other
	s.mu.Unlock()
	switch {
	case other != "":
		s.metrics.mismatch.Set(1)
		if before != other {
			s.cfg.Log.Warn().Str("found", other).Str("configured", s.format()).
				Msg("Argo CD keeps its cache in another format: set redis.cache_version and redis.compression")
		}
	default:
		s.metrics.mismatch.Set(0)
	}
	return other, nil
}

// scanFormat goes through the keys of Applications. It returns the format of the last one when
// none is in ours, and nothing else.
func (c *spokeSession) scanFormat() (other string, err error) {
	cursor := "0"
	for range scanSteps {
		err = c.fromRedis.Ask(c.redis, "SCAN", cursor, "MATCH", "app|*", "COUNT", strconv.Itoa(scanCount))
		if err != nil {
			var refused resp.RefusalError
			if errors.As(err, &refused) {
				return "", nil // without that right it cannot be known
			}
			return "", err
		}
		if n, err := c.fromRedis.Collection('*'); err != nil || n != 2 {
			return "", errors.Join(resp.ErrProtocol, err)
		}
		if cursor, _, err = c.fromRedis.Small(); err != nil {
			return "", err
		}
		n, err := c.fromRedis.Collection('*')
		if err != nil {
			return "", err
		}
		ours := false
		for range n {
			text, _, err := c.fromRedis.Small()
			if err != nil {
				return "", err
			}
			if k, ok := appkey.ParseKey(text); ok {
				ours = ours || k.Format == c.spoke.format()
				other = k.Format
			}
		}
		if ours {
			return "", nil
		}
		if cursor == "0" {
			return other, nil
		}
	}
	return other, nil
}
