package spire

// What the fuzz targets need of the wire.
var (
	ReadEntry      = entryFromWire
	WriteEntry     = entryToWire
	ReadFederation = federationFromWire
)
