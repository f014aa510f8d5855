package redis

// owned is an agent's key as a caller names it.
type owned struct {
	key    Key
	text   string
	target Target
}

// asked is the key by which the agent knows it.
func (o owned) asked() string { return o.key.of(o.target.Instance).String() }

// keysOf returns the arguments that are agents' keys, and how many are not. An error
// comes with the first key that it is about.
func (c *caller) keysOf(args []string) (keys []owned, other int, err error) {
	for _, arg := range args {
		key, ok := ParseKey(arg)
		if !ok {
			other++
			continue
		}
		target, isOwned, err := c.hub.cfg.Owners.Owner(key.Instance)
		if err != nil {
			return []owned{{key: key, text: arg}}, other, err
		}
		if !isOwned {
			other++
			continue
		}
		keys = append(keys, owned{key: key, text: arg, target: target})
	}
	return keys, other, nil
}
