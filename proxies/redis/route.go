package redis

import "github.com/argomesh/argomesh/proxies/redis/appkey"

// owned is an agent's key as a caller names it.
type owned struct {
	key    appkey.Key
	text   string
	target Target
}

// asked is the key by which the agent knows it.
func (o owned) asked() string { return o.key.Of(o.target.Instance).String() }
