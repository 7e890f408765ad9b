from beam_pipeline.cli import program

program()
