// Package config reads the settings of one binary. It owns the layers, the
// names and the messages; what the settings mean is the binary's business.
//
// A binary describes its settings as one struct whose fields carry a key
// segment and a help text. One rule derives every other name from the key:
//
//	key          stream.listen
//	YAML         stream: {listen: "127.0.0.1:8443"}
//	environment  PRINCIPAL__STREAM__LISTEN
//	flag         --stream.listen
//
// The layers are the defaults, the YAML file named by --config (or
// PRINCIPAL__CONFIG), the environment and the flags; later ones win. A list or
// a map given by a layer replaces the earlier one as a whole. A null in the
// file, and a flag that is not given, set nothing. A key no one knows stops
// the start, in the file and in the environment too.
//
//	type Config struct {
//		Log    config.Log `koanf:"log"`
//		Stream struct {
//			Listen string `koanf:"listen" help:"address agents connect to"`
//		} `koanf:"stream"`
//	}
//
//	cfg, err := config.Load(config.Program{Name: "principal"}, args, Default())
//
// A tool that goes by the file of another program reads it with [Read].
//
// The package also holds the blocks of settings that several binaries share
// ([Log], [Admin], [Tracing], [Kubernetes], [Identity]).
package config
