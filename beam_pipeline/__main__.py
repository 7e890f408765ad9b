from beam_pipeline.cli import main

main()
