package appkey

// The first words of a Spoke's errors.
const (
	SpokeDenied = "DENIED"  // the command or the key is not for the hub
	SpokeFormat = "FORMAT"  // the format it keeps follows
	SpokeAway   = "NOREDIS" // its Redis does not answer
)
